"""A worker's slots: how many turns it may hold, and the one that its listener lends."""

import threading

import pytest

from agents.slots import Slots


def test_no_more_are_taken_than_there_are():
    slots = Slots(2)
    assert [slots.take() for _ in range(3)] == [True, True, False]
    slots.release()
    assert [slots.take() for _ in range(2)] == [True, False]


def test_more_cannot_be_given_back_than_were_taken():
    with pytest.raises(ValueError):
        Slots(1).release()


def test_a_bell_is_answered_in_the_listeners_slot():
    slots = Slots(1)
    slots.listen()
    assert slots.heard() is True
    assert slots.take() is False
    slots.release()
    assert slots.take() is True


def test_a_turn_at_hand_takes_the_slot_of_the_listener_who_is_told():
    slots = Slots(1)
    slots.listen()
    assert slots.take() is True
    assert slots.take() is False
    assert slots.heard() is False
    slots.release()
    assert [slots.take() for _ in range(2)] == [True, False]


def test_whoever_listens_waits_while_every_slot_holds_a_turn():
    slots = Slots(1)
    slots.acquire()
    listening = threading.Event()

    def listen() -> None:
        slots.listen()
        listening.set()

    threading.Thread(target=listen, daemon=True).start()
    assert not listening.wait(0.1)
    slots.release()
    assert listening.wait(5) and slots.heard()


def test_listening_is_over_once_it_was_asked():
    slots = Slots(1)
    slots.listen()
    assert (slots.heard(), slots.heard()) == (True, False)
