"""Kubernetes gets values of a manifest with the type that YAML 1.1 gives them."""

import json

import pytest

from hived.values.errors import UserError
from hived_jobs.documents import read_documents


def value_of(text, write):
    (document,) = read_documents(write(f"v: {text}\n"))
    return document.value()["v"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0", 0),
        ("+1_000", 1000),
        ("010", 8),
        ("-010", -8),
        ("08", "08"),
        ("0x1F", 31),
        ("0b101", 5),
        ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5),
        ("1.5e+3", 1500.0),
        ("1e3", "1e3"),
        ("true", True),
        ("No", False),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("text", "text"),
        ("'3'", "3"),
        ('"true"', "true"),
        ("!!str 3", "3"),
        ("!!int '3'", 3),
        ("!!float 3", 3.0),
        ("!!bool 'on'", True),
        ("!!null ''", None),
        ("2024-01-02", "2024-01-02"),
        ("2024-13-45", "2024-13-45"),
        ("12:30:45", "12:30:45"),
        ("1:30.5", "1:30.5"),
        ("0b_", "0b_"),
        ("=", "="),
        ("[1, [a, ~]]", [1, ["a", None]]),
        ("{1: a, no: b, ~: c}", {"1": "a", "no": "b", "~": "c"}),
        ("!!map {a: !!seq [1]}", {"a": [1]}),
        ("{a: &a {b: 1, c: 2}, d: {<<: *a, c: 3}}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
    ],
)
def test_a_value_has_the_type_that_yaml_gives_it(text, value, write):
    found = value_of(text, write)
    assert (found, type(found)) == (value, type(value))
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!int foo", "found 'foo' tagged 'tag:yaml.org,2002:int', expected a value of that type"),
        ("!!bool foo", "found 'foo' tagged 'tag:yaml.org,2002:bool', expected a value of that type"),
        ("!!float 1:30.5", "found '1:30.5' tagged 'tag:yaml.org,2002:float', expected a value of that type"),
        ("!!timestamp 2024-01-02", "found a value tagged 'tag:yaml.org,2002:timestamp', expected plain YAML"),
        ("!!binary aGk=", "found a value tagged 'tag:yaml.org,2002:binary', expected plain YAML"),
        ("!foo {}", "found a value tagged '!foo', expected plain YAML"),
        (".INF", "found .INF, expected a number that JSON can hold, or a text in quotes"),
        (".nan", "found .nan, expected a number that JSON can hold, or a text in quotes"),
        ("1.0e+999", "found 1.0e+999, expected a number that JSON can hold, or a text in quotes"),
        (str(2**64), f"found {2**64}, expected a number that JSON can hold, or a text in quotes"),
    ],
)
def test_a_value_without_such_a_type_is_refused_with_its_place(text, message, write):
    with pytest.raises(UserError) as caught:
        value_of(text, write)
    assert caught.value.message.endswith(f"job.yaml:1: v: {message}")


def test_thousands_of_digits_are_refused(write):
    with pytest.raises(UserError, match="expected a number that JSON can hold"):
        value_of("1" * 5000, write)


def test_every_value_that_cannot_be_sent_is_listed(write):
    with pytest.raises(UserError) as caught:
        value_of("[!a 1, 2, !b 3]", write)
    assert [line.split("job.yaml:1: ")[1].split(":")[0] for line in caught.value.message.splitlines()] == [
        "v[0]",
        "v[2]",
    ]
