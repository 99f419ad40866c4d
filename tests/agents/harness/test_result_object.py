"""Finding the result object: in noise, in streams, in what was meant to take long."""

from __future__ import annotations

import json
import time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.harness.result_object import NAMES, last_result

FINE = b'{"result": "fine"}'


@pytest.mark.parametrize(
    "data",
    [
        FINE,
        FINE + b"\n",
        "starting…\n[1, 2]\n".encode() + FINE,
        b'{"type": "assistant"}\n' + FINE + b"\n\n",
        b"warn: {broken\n" + FINE + b"\nbye\n",
        b'warn: {"broken\n' + FINE,
        b"100% [====>  ] {" + FINE + b"} ]]] }}} done",
        b'she said "hi" ' + FINE + b' and "bye',
        b'5" pipe ' + FINE,
        b'{ 5" pipe ' + FINE,
        b'{ 5" pipe { 6" ' + FINE + b' "',
        b"C:\\new\\" + FINE + b"\\",
        b"{\\" + FINE,
        b'{"a\\' + FINE,
        b'{"result": "old"}' + FINE + b'{"other": 1}',
        b'{"result": "old"}' + FINE + b'{"result": oops}',
        b'[{"type": "system"}, ' + FINE + b"]",
        b"\xff\xfe\x00" + FINE + b"\xf0\x9f",
        json.dumps({"result": "fine", "more": {"x": [1, {"y": 2}]}}, indent=4).encode(),
        b'{"result": "old"}\r\n' + json.dumps({"other": 1, "result": "fine"}, indent="\t").encode() + b"\r\n",
        b'{"result": "a } b"}' + FINE,
        b'{"before": {"is_error": true, "result": "inner"}, "result": "fine"}',
        b'{"result": "fine", "after": {"result": "inner"}}',
        b'{"result": "fine", "quoted": "{\\"result\\": \\"inner\\"}"}',
        b'{"result": "fine", "brackets": "}{][{{"}',
        b'{"result": "fine", "control": "a\nb\tc"}',
        b"{" * 700 + FINE,
        b"[" * 700 + FINE,
        b"{{" + FINE + b"}}",
        b"{1: " + FINE + b", 2}",
        b'{"a":' * 3000 + FINE,
    ],
)
def test_the_last_object_is_found_whatever_stands_around_it(data):
    found = last_result(data, True)
    assert found is not None and found["result"] == "fine"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"all went well",
        b"[1, 2]",
        b'{"hello": 1}',
        b'"result"',
        b'["result"]',
        b'{"a": "result"}',
        b'{"a": {"b": "is_error"}}',
        b'{"result": "fine"',
        b'{"result": }',
        b'{"result": "fine",}',
        b"{'result': 'fine'}",
        b'{result: "fine"}',
        b'{"result": "fine" "x": 1}',
    ],
)
def test_what_is_no_result_object_is_none(data):
    assert last_result(data, True) is None


def test_a_result_that_is_nested_deeper_than_a_parser_goes_is_none():
    deep = b'{"result": "x", "deep": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert last_result(deep, True) is None
    assert last_result(FINE + deep, True) == {"result": "fine"}


def test_an_object_inside_of_one_that_began_before_the_data_is_none():
    cut = b'"content": [{"type": "tool_result", "is_error": true}]}}\n'
    assert last_result(cut, whole=False) is None
    assert last_result(cut + FINE, whole=False) == {"result": "fine"}
    assert last_result(b"xxxx" + FINE + b"\n", whole=False) == {"result": "fine"}


def test_numbers_never_pass_through_a_float():
    found = last_result(b'{"result": 0.1, "big": 12345678901234567890, "small": 7, "none": NaN, "far": 1e400}', True)
    assert found["result"] == Decimal("0.1") and found["big"] == 12345678901234567890 and type(found["small"]) is int
    assert found["none"].is_nan() and found["far"] == Decimal("1e400")


def test_text_is_read_as_utf8():
    assert last_result('{"result": "日本 é 😀"}'.encode(), True) == {"result": "日本 é 😀"}
    assert last_result(b'{"result": "a\xffb\xe2\x28\xa1"}', True) == {"result": "a\ufffdb\ufffd(\ufffd"}
    assert last_result('{"é": 1, "result": {"日": "本"}} trailing é'.encode(), True)["result"] == {"日": "本"}


SIZE = 2 << 20
SLOW = {
    "one letter": b"x" * SIZE,
    "open brackets": b"{" * SIZE,
    "empty objects": b"{}" * (SIZE // 2),
    "open results": b'{"result":' * (SIZE // 10),
    "nested results": b'{"result":' * (SIZE // 11) + b"1" + b"}" * (SIZE // 11),
    "broken nested results": b'{"result":' * (SIZE // 11) + b"x" + b"}" * (SIZE // 11),
    "broken results": b'{"result":x}' * (SIZE // 12),
    "long arrays, deep": b'{"result":' * 490 + b"[" + b"0," * (SIZE // 2) + b"x]" + b"}" * 490,
    "long arrays, many": (b'{"result":' * 400 + b"[" + b"0," * 4000 + b"x]" + b"}" * 400) * 100,
    "late errors": b'{"result":[' * 200 + b'"y"' + b" x]}" * 200 + b"0," * SIZE,
    "quotes": b'"' * SIZE,
    "backslashes": b"\\" * SIZE,
    "open strings": b'{"result":"' * (SIZE // 11),
    "digits": b'{"result":' + b"9" * SIZE + b"}",
}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW.keys())
def test_no_output_makes_it_take_long(data):
    began = time.monotonic()
    last_result(data, True)
    assert last_result(data + b"\n" + FINE, True) is not None
    assert time.monotonic() - began < 5


# -- properties -----------------------------------------------------------------------------------
TOKENS = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"result"',
    '"is_error"',
    '"a"',
    "1",
    "true",
    "x",
    " ",
    "\n",
    '{"result":1}',
    '{"a":2}',
]


def naive(text: str) -> dict | None:
    """The obvious way, quadratic: from every bracket on, as far as it is JSON."""
    decoder, at, found = json.JSONDecoder(), 0, None
    while (at := text.find("{", at)) >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        if any(name in value for name in NAMES):
            found = value
        at = end
    return found


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_it_finds_what_the_obvious_way_finds(text):
    assert last_result(text.encode(), True) == naive(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet=st.characters(codec="utf-8")),
    st.dictionaries(st.text(), json_values, max_size=4),
    json_values,
    st.sampled_from([None, 2, "\t"]),
    st.booleans(),
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters='{}"\\')),
)
def test_any_object_is_found_behind_any_noise(noise, others, value, indent, ascii_only, after):
    result = {**others, "result": value}
    text = noise + "\n" + json.dumps(result, indent=indent, ensure_ascii=ascii_only) + after
    assert last_result(text.encode("utf-8", "replace"), True) == json.loads(
        json.dumps(result).encode("utf-8", "replace")
    )


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_looked_through(data, whole):
    found = last_result(data + b' "result" ' + data, whole)
    assert found is None or any(name in found for name in NAMES)
