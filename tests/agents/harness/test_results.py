"""Results: what a process said and how it ended, put in words. Tables, and properties that hold for any bytes."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.harness.command import collect_json, collect_text
from agents.harness.contract import Order, Result
from agents.harness.masking import PIECE
from agents.harness.result_object import last_result
from agents.harness.results import (
    ERROR_LIMIT,
    MISSING,
    RESPONSE_LIMIT,
    Ending,
    clean,
    cost_of,
    json_result,
    last_characters,
    text_result,
)
from agents.harness.spools import Tail
from agents.harness.wrapper import Exit

KEY = "trinity_turn_exec_0192f0c1d2e3.1." + "".join(f"{n * 37 % 256:02x}" for n in range(32))
NOTHING = Tail(b"", True)
KILLED, TIMED_OUT = 137, 124


def ending(rc: int = 0, seconds: str = "1.5", limit: int = 10) -> Ending:
    return Ending("/bin/agent", Exit(rc, Decimal("100.25"), Decimal("100.25") + Decimal(seconds), limit))


def text(out: bytes = b"", err: bytes = b"", rc: int = 0, whole: bool = True, seconds: str = "1.5") -> Result:
    return text_result(ending(rc, seconds), Tail(out, whole), Tail(err, True), [KEY])


def said(value: object, err: bytes = b"", rc: int = 0, seconds: str = "1.5", around: bytes = b"%b\n") -> Result:
    out = around % json.dumps(value).encode()
    return json_result(ending(rc, seconds), last_result(out, True), Tail(out, True), Tail(err, True), [KEY])


# -- text -----------------------------------------------------------------------------------------
def test_exit_0_is_success_and_stdout_the_answer():
    result = text(b"the answer\n", b"noise")
    assert result == Result(True, response="the answer\n", duration_ms=1500)


def test_an_empty_answer_is_an_answer():
    assert text() == Result(True, duration_ms=1500)


@pytest.mark.parametrize(
    ("out", "err", "rc", "error"),
    [
        (b"out", b"err\n", 1, "err"),
        (b"out\n", b"", 1, "out"),
        (b"out", b" \n\t ", 1, "out"),
        (b"", b"", 1, "exit code 1"),
        (b"\n", b"\n", 255, "exit code 255"),
        (b"out", b"", KILLED, "ended by SIGKILL (signal 9)\nout"),
        (b"", b"", 143, "ended by SIGTERM (signal 15)"),
        (b"", b"", 128 + 40, "ended by signal 40"),
        (b"", b"", 128, "exit code 128"),
        (b"", b"", 193, "exit code 193"),
        (b"", b"why", TIMED_OUT, "why"),
        (b"", b"sh: 1: x: not found\n", 127, "sh: 1: x: not found"),
        (
            b"",
            b"timeout: failed to run command '/bin/agent': Permission denied\n",
            126,
            "could not start /bin/agent: Permission denied",
        ),
        (
            b"",
            "timeout: Ausführen von Befehl „/bin/agent“ nicht möglich: Datei nicht gefunden\n".encode(),
            127,
            "could not start /bin/agent: Datei nicht gefunden",
        ),
    ],
)
def test_a_failure_says_why(out, err, rc, error):
    result = text(out, err, rc)
    assert (result.succeeded, result.error, result.response, result.timed_out) == (False, error, "", False)


@pytest.mark.parametrize(
    "err",
    [
        b"timeout: failed to run command '/bin/other': No such file or directory\n",
        b"first\ntimeout: failed to run command '/bin/agent': No such file or directory\n",
    ],
    ids=["another program", "after other words"],
)
def test_only_the_agents_own_program_could_not_start(err):
    assert text(b"", err, 127).error == err.decode().strip()


def test_the_error_is_the_last_2000_characters():
    assert text(b"", b"x" * 5000 + "é".encode() * 1999 + b"!", 1).error == "é" * 1999 + "!"
    assert text(b"y" * 5000 + b" the end \n", b"", 1).error == "y" * (ERROR_LIMIT - 8) + " the end"


@pytest.mark.parametrize(
    ("rc", "seconds", "timed_out"),
    [
        (TIMED_OUT, "10", True),
        (TIMED_OUT, "10.01", True),
        (TIMED_OUT, "9.99", False),
        (KILLED, "15.02", True),
        (KILLED, "9.99", False),
        (143, "12", False),
        (1, "12", False),
    ],
)
def test_it_was_the_limit_only_if_the_time_was_up(rc, seconds, timed_out):
    result = text(b"so far", b"", rc, seconds=seconds)
    assert result.timed_out is timed_out
    assert (result.error == "timed out after 10 s\nso far") is timed_out


def test_a_success_at_the_last_moment_is_a_success():
    assert text(b"just so", rc=0, seconds="10.00").succeeded


# -- decoding and cutting -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\xf0\xb2", "\ufffd"),
        ("中".encode("gbk"), "\ufffd\ufffd"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "\ufffdPNG\r\n\x1a\n\ufffd\ufffd"),
        (b"\x00", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("👩‍👩‍👧 é\u0301".encode(), "👩‍👩‍👧 é\u0301"),
        (b"\xef\xbb\xbfx", "\ufeffx"),
    ],
)
def test_what_is_no_text_is_replaced(raw, shown):
    assert text(b"<" + raw + b">").response == f"<{shown}>"


@pytest.mark.parametrize("sign", ["x", "é", "日", "😀"])
def test_the_limit_counts_characters_and_keeps_the_tail(sign):
    exactly = (sign * RESPONSE_LIMIT).encode()
    assert text(exactly) == Result(True, response=sign * RESPONSE_LIMIT, duration_ms=1500)
    longer = text(b"head" + exactly)
    assert (longer.response == sign * RESPONSE_LIMIT, longer.response_truncated) == (True, True)


def test_a_tail_that_is_not_all_there_was_is_marked():
    assert text(b"tail", whole=False).response_truncated
    assert not text(b"tail", whole=True).response_truncated


def test_what_is_shown_live_is_masked_and_proper_text():
    assert last_characters(Tail(b"\x80abc\0" + KEY.encode(), False), 12, [KEY]) == "abc\ufffd[masked]"


# -- json -----------------------------------------------------------------------------------------
FULL = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "fine",
    "total_cost_usd": 0.25,
    "session_id": "s-1",
    "num_turns": 3,
    "model": "some-model",
    "usage": {"input_tokens": 10, "output_tokens": 20, "cache": {"read": 1}, "share": 0.5, "tier": "standard"},
}


def test_a_result_object_gives_everything():
    assert said(FULL) == Result(
        True,
        response="fine",
        cost=Decimal("0.250000"),
        session_id="s-1",
        model="some-model",
        usage={**FULL["usage"], "num_turns": 3},
        duration_ms=1500,
    )


@pytest.mark.parametrize("value", [{"result": ""}, {"result": None}, {"is_error": False}])
def test_a_result_object_with_an_empty_answer_is_a_success(value):
    assert said(value) == Result(True, duration_ms=1500)


@pytest.mark.parametrize(
    ("result", "response"), [(5, "5"), (True, "true"), (["a", None], '["a", null]'), ({"é": 0.5}, '{"é": 0.5}')]
)
def test_an_answer_that_is_no_text_is_shown_as_json(result, response):
    assert said({"result": result}).response == response


@pytest.mark.parametrize(
    ("change", "rc", "seconds", "error"),
    [
        ({"is_error": True, "result": "limit resets 1pm"}, 0, "1", "limit resets 1pm"),
        ({"is_error": True, "result": "limit resets 1pm"}, 1, "1", "exit code 1: limit resets 1pm"),
        ({"is_error": True, "result": ""}, 0, "1", "the last words"),
        ({}, 7, "1", "exit code 7: fine"),
        ({}, KILLED, "1", "ended by SIGKILL (signal 9): fine"),
        ({}, TIMED_OUT, "10", "timed out after 10 s: fine"),
        ({"result": ""}, KILLED, "15", "timed out after 10 s: the last words"),
        ({"result": "x" * 5000 + "end"}, 1, "1", "exit code 1: " + "x" * (ERROR_LIMIT - 3) + "end"),
    ],
)
def test_a_failure_with_a_result_says_both_and_its_cost_counts(change, rc, seconds, error):
    result = said({**FULL, **change}, b"the last words\n", rc, seconds)
    assert (result.succeeded, result.error, result.cost, result.response) == (False, error, Decimal("0.25"), "")
    assert (result.session_id, result.usage["num_turns"]) == ("s-1", 3)


def test_an_error_that_says_nothing_is_still_said():
    assert said({"is_error": True}).error == "the agent reported an error and did not say which"


@pytest.mark.parametrize(
    ("out", "err", "rc", "error"),
    [
        (b"all went well\n", b"", 0, f"{MISSING}\nall went well"),
        (b"", b"", 0, MISSING),
        (b"[1, 2]", b"", 0, f"{MISSING}\n[1, 2]"),
        (b'{"hello": 1}', b"broken", 3, f"{MISSING}, exit code 3\nbroken"),
        (b"so far", b"", KILLED, "ended by SIGKILL (signal 9)\nso far"),
        (
            b"",
            b"timeout: failed to run command '/bin/agent': Exec format error\n",
            126,
            "could not start /bin/agent: Exec format error",
        ),
    ],
)
def test_without_a_result_object_the_turn_failed_whatever_the_exit_code(out, err, rc, error):
    result = json_result(ending(rc), last_result(out, True), Tail(out, True), Tail(err, True), [])
    assert (result.succeeded, result.error, result.cost) == (False, error, None)


def test_nul_and_lone_surrogates_are_replaced_and_pairs_are_not():
    assert said({"result": "a\0b\ud800c😀"}).response == "a\ufffdb\ufffdc😀"


@pytest.mark.parametrize("sign", ["x", "日", "😀"])
def test_the_limit_holds_for_a_result_object_too(sign, tmp_path):
    order = Order("exec_1", tmp_path, tmp_path, ("/bin/agent",), "", "json", {}, 10)
    (tmp_path / "out").write_text(json.dumps({"result": sign * RESPONSE_LIMIT}))
    result = collect_json(order, ending())
    assert (len(result.response), result.response_truncated) == (RESPONSE_LIMIT, False)
    assert set(result.response) == {sign}
    if sign == "x":
        (tmp_path / "out").write_text(json.dumps({"result": "head" + sign * 2 * RESPONSE_LIMIT + "tail"}))
        result = collect_json(order, ending())
        assert (len(result.response), result.response_truncated) == (RESPONSE_LIMIT, True)
        assert result.response.endswith("xtail")


def test_a_small_result_after_a_flood_is_found(tmp_path):
    order = Order("exec_1", tmp_path, tmp_path, ("/bin/agent",), "", "json", {}, 10)
    (tmp_path / "out").write_bytes(b"x" * (20 << 20) + json.dumps(FULL).encode())
    result = collect_json(order, ending())
    assert (result.response, result.response_truncated) == ("fine", False)


# -- cost -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "cost"),
    [
        ("0", "0"), ("0.25", "0.25"), ("5.11", "5.11"), ("1e-7", "0"), ("0.0000005", "0"), ("0.0000015", "0.000002"),
        ("0.1", "0.1"), ("1E2", "100"), ("-0.0", "0"), ("1000000000", "1000000000"), ("1e9", "1e9"),
        ("0.10000000000000000000000000000000000000000001", "0.1"), ("123456789.1234564", "123456789.123456"),
        ("1000000000.0000001", None), ("1e10", None), ("1e309", None), ("1e999999999999999999999", None), ("-0.01", None), ("-5", None),
        ("NaN", None), ("Infinity", None), ("-Infinity", None), ("null", None), ("true", None), ("false", None),
        ('"0.25"', None), ('"abc"', None), ("[1]", None), ("{}", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_a_cost_is_a_sane_number_or_not_reported(written, cost):
    found = last_result(b'{"result": "x", "total_cost_usd": %b}' % written.encode(), True)
    result = json_result(ending(), found, NOTHING, NOTHING, [])
    assert result.succeeded
    assert result.cost == (None if cost is None else Decimal(cost))
    if cost is not None:
        assert result.cost.as_tuple().exponent == -6 and not result.cost.is_signed()


def test_a_missing_cost_is_not_reported():
    assert said({"result": "x"}).cost is None
    assert cost_of(0.25) is None, "a float never gets here: money is read as decimal text"


@pytest.mark.parametrize(
    ("change", "usage"),
    [
        ({}, None),
        ({"usage": "many"}, None),
        ({"usage": []}, None),
        ({"usage": {}, "num_turns": "3"}, None),
        ({"num_turns": 2}, {"num_turns": 2}),
        ({"usage": {"a": float("nan"), "b": 10**400, "c": 1e308}}, {"a": None, "b": None, "c": None}),
        ({"usage": {"a": {"b": {"c": {"d": 1}}}}}, {"a": {"b": {"c": None}}}),
        ({"usage": {"a\0": "b\ud800"}}, {"a\ufffd": "b\ufffd"}),
    ],
)
def test_usage_is_kept_as_far_as_it_is_plain(change, usage):
    assert said({"result": "x", **change}).usage == usage


@pytest.mark.parametrize("value", [None, 5, ["s"], True])
def test_a_session_or_model_that_is_no_text_is_none(value):
    result = said({"result": "x", "session_id": value, "model": value})
    assert (result.session_id, result.model) == ("", "")


# -- properties -----------------------------------------------------------------------------------
endings = st.builds(
    ending, st.integers(0, 255), st.sampled_from(["0", "0.01", "9.99", "10", "17.5"]), st.just(10)
)  # fmt: skip
PARTS = [
    b'{"result":',
    b'"',
    b"{",
    b"}",
    b"\\",
    b"\\u0000",
    b'"is_error":true',
    b",",
    b"[",
    b"]",
    b"1e999",
    b"\xf0\x9f",
    b"\n",
    b"timeout: ",
]
blobs = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PARTS), max_size=30).map(b"".join))


def texts_of(result: Result) -> str:
    """Everything that is kept of a result."""
    return "\n".join(
        [result.response, result.error, result.session_id, result.model, json.dumps(result.usage, ensure_ascii=False)]
    )


@settings(max_examples=300, deadline=None)
@given(endings, blobs, blobs, st.booleans())
def test_any_bytes_give_a_proper_result(ending, out, err, whole):
    tails = Tail(out, whole), Tail(err, True)
    for result in (
        text_result(ending, *tails, [KEY]),
        json_result(ending, last_result(out, whole), *tails, [KEY]),
    ):
        assert result.succeeded is (result.error == "")
        assert "\0" not in texts_of(result)
        texts_of(result).encode()
        json.dumps(result.usage, allow_nan=False)
        assert len(result.response) <= RESPONSE_LIMIT
        assert len(result.error) <= ERROR_LIMIT + 200
        assert result.cost is None or 0 <= result.cost <= 10**9


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
FIELDS = ["result", "is_error", "total_cost_usd", "session_id", "model", "usage", "num_turns"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FIELDS), values, st.integers(0, 3))
def test_any_value_in_any_field_gives_a_proper_result(name, value, rc):
    result = said({"result": "x", name: value}, rc=rc)
    texts_of(result).encode()
    json.dumps(result.usage, allow_nan=False)
    assert result.succeeded is (rc == 0 and not (name == "is_error" and value is True))


@settings(max_examples=300, deadline=None)
@given(
    endings,
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.integers(0, len(KEY)),
    st.sampled_from([b"", b"\n", b"  ", b"\r\n\t"]),
    st.sampled_from(["out", "err"]),
)
def test_a_key_printed_in_two_pieces_is_never_kept(ending, before, after, split, gap, where):
    key = KEY.encode()
    data = before + key[:split] + gap + key[split:] + after
    out, err = (Tail(data, True), NOTHING) if where == "out" else (NOTHING, Tail(data, True))
    for result in (text_result(ending, out, err, [KEY]), json_result(ending, None, out, err, [KEY])):
        assert_no_piece(texts_of(result))


@settings(max_examples=200, deadline=None)
@given(endings, st.integers(0, len(KEY)), st.integers(0, len(KEY)), st.binary(max_size=20))
def test_a_key_cut_off_at_either_edge_is_never_kept(ending, cut_front, cut_back, between):
    key = KEY.encode()
    data = key[cut_front:] + b" " + between + b" " + key[:cut_back]
    for result in (
        text_result(ending, Tail(data, False), NOTHING, [KEY]),
        text_result(ending, NOTHING, Tail(data, False), [KEY]),
    ):
        assert_no_piece(texts_of(result))


@pytest.mark.parametrize("name", ["result", "session_id", "model"])
@pytest.mark.parametrize("is_error", [False, True])
def test_a_key_in_any_field_of_a_result_object_is_never_kept(name, is_error):
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in KEY)
    for written in (KEY, escaped, KEY[:40] + "\\n" + KEY[40:]):
        out = f'{{"result": "x", "is_error": {str(is_error).lower()}, "{name}": "a {written} b"}}'.encode()
        result = json_result(ending(), last_result(out, True), Tail(out, True), NOTHING, [KEY])
        assert_no_piece(texts_of(result))
        assert "[masked]" in texts_of(result)


def test_a_key_in_the_usage_is_never_kept():
    result = said({"result": "x", "usage": {KEY: KEY, "a": {"b": f"x{KEY}"}}})
    assert_no_piece(texts_of(result))
    assert_no_piece(texts_of(said({"result": [KEY, {KEY: KEY}]})))


def test_a_key_across_the_edge_of_what_is_kept_is_never_kept(tmp_path):
    order = Order("exec_1", tmp_path, tmp_path, ("/bin/agent",), "", "text", {}, 10, secrets=(KEY,))
    for after in range(RESPONSE_LIMIT - len(KEY), RESPONSE_LIMIT + 1, 17):
        (tmp_path / "out").write_bytes(b"x" * 100 + KEY.encode() + b"y" * after)
        assert_no_piece(collect_text(order, ending()).response)
    for after in range(ERROR_LIMIT - len(KEY), ERROR_LIMIT + 1, 3):
        (tmp_path / "err").write_bytes(b"x" * 20_000 + KEY.encode() + b"y" * after)
        assert_no_piece(collect_text(order, ending(rc=1)).error)


def assert_no_piece(text: str) -> None:
    """No piece of the second half of the key, which alone is secret, survives."""
    dense = "".join(text.split())
    half = KEY[len(KEY) // 2 :]
    assert not [at for at in range(len(half) - PIECE + 1) if half[at : at + PIECE] in dense]


@given(st.text(alphabet=st.characters()))
def test_clean_text_is_text(value):
    clean(value).encode()
    assert len(clean(value)) == len(value)
