"""A file that several processes may make at once is made once, and nobody reads half of it."""

import multiprocessing

import pytest

from agents.once import made_once


def _make(file, start, found):
    start.wait()
    found.put(made_once(file, lambda: multiprocessing.current_process().name))


def test_of_many_that_make_it_at_once_all_read_the_same(tmp_path):
    context = multiprocessing.get_context("fork")
    for number in range(20):
        start, found = context.Event(), context.SimpleQueue()
        many = [context.Process(target=_make, args=(tmp_path / str(number), start, found)) for _ in range(4)]
        for one in many:
            one.start()
        start.set()
        said = {found.get() for _ in many}
        for one in many:
            one.join()
        assert len(said) == 1 and "" not in said
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_it_is_ours_alone_and_not_made_again(tmp_path):
    file = tmp_path / "secret"
    assert made_once(file, lambda: "first") == made_once(file, lambda: "second") == "first"
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_empty_one_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        made_once(tmp_path / "empty", lambda: "x")
