"""The described bounds of a loop's fields are those that the core holds to."""

import pytest

from loops.api.fields import START
from loops.core import spec

PROPERTIES = START["properties"]


def inside_and_outside(schema):
    """Values at the bounds of a schema, and values just beyond them."""
    type = schema["type"][0] if isinstance(schema["type"], list) else schema["type"]
    match type:
        case "integer":
            least, most = schema["minimum"], schema["maximum"]
            return [least, most], [least - 1, most + 1, float(most), str(most), True]
        case "number":
            return [0.000001, schema["maximum"]], [schema["exclusiveMinimum"], -1, schema["maximum"] + 0.1, "1", True]
        case "string" if "enum" in schema:
            return [word for word in schema["enum"] if word], ["", "Abort", 1]
        case "string":
            most = schema["maxLength"]
            below = ["x" * (schema["minLength"] - 1)] if schema["minLength"] else []
            return ["x" * max(1, schema["minLength"]), "x" * most], [*below, "x" * (most + 1), "a\0b", "\ud800", 5]
        case "array":
            item, most = schema["items"], schema["maxItems"]
            long = "x" * item["maxLength"]
            return [[], [long], ["x"] * most], [["x"] * (most + 1), [long + "x"], [""], [" "], ["a,b"], [1], "x", {}]
    raise AssertionError(schema)


def test_the_described_fields_are_the_cores():
    assert list(PROPERTIES) == list(spec.FIELDS)
    assert START["required"] == list(spec.REQUIRED) and START["additionalProperties"] is False


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_core_takes_the_bounds_and_nothing_beyond(name):
    good, bad = inside_and_outside(PROPERTIES[name])
    for value in good:
        spec.FIELDS[name](value)
    for value in bad:
        with pytest.raises(ValueError, match="must"):
            spec.FIELDS[name](value)


def test_what_is_excluded_within_the_bounds_is_described_too():
    assert PROPERTIES["no_progress_threshold"]["not"] == {"const": 1}
    with pytest.raises(ValueError, match="0"):
        spec.FIELDS["no_progress_threshold"](1)
    spec.FIELDS["no_progress_threshold"](2)


@pytest.mark.parametrize("name", [name for name in PROPERTIES if name not in spec.REQUIRED])
def test_optional_fields_may_be_null_and_tell_their_default(name):
    described = PROPERTIES[name]
    assert "null" in described["type"]
    stored = getattr(spec.parse({"message": "x", "max_runs": 1, name: None}), name)
    assert described["default"] == stored
