"""Selectors of labels are read as kubectl reads them, or refused as it refuses them."""

import pytest

from hived.values.errors import UserError
from hived_config.selectors import Requirement, _terms, matches, read_selector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ", []),
        ("a=b", [("a", "In", ("b",))]),
        ("a == b", [("a", "In", ("b",))]),
        ("a!=b,c", [("a", "NotIn", ("b",)), ("c", "Exists", ())]),
        ("a=", [("a", "In", ("",))]),
        ("!a", [("a", "DoesNotExist", ())]),
        ("a in (b, c), d notin (e)", [("a", "In", ("b", "c")), ("d", "NotIn", ("e",))]),
        ("a in(b)", [("a", "In", ("b",))]),
        ("in in (in)", [("in", "In", ("in",))]),
        ("a in ()", [("a", "In", ("",))]),
        ("example.com/a_B.c=d", [("example.com/a_B.c", "In", ("d",))]),
        ("a>3,b<-4", [("a", "Gt", ("3",)), ("b", "Lt", ("-4",))]),
    ],
)
def test_a_selector_has_a_requirement_for_each_term(
    text: str, expected: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    assert read_selector(text) == tuple(Requirement(*each) for each in expected)


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a,",
        ",a",
        "a,,b",
        "a=b=c",
        "a in b",
        "a in (b",
        "a in b)",
        "a in (b) c",
        "a within (b)",
        "a in (b c)",
        "a notin (-b)",
        "ain (b)",
        "!a=b",
        "-a",
        "a-",
        "A/b",
        "a/b/c",
        "/a",
        "a b",
        "a>b",
        "a=b c",
        "a=*",
        "!",
        f"{64 * 'a'}",
        f"a={64 * 'b'}",
        f"a in (b, {64 * 'b'})",
    ],
)
def test_a_selector_that_kubectl_refuses_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(UserError, match=r"^selector .+ cannot be read; expected app=train, .+ gpu or !gpu"):
        read_selector(text)


@pytest.mark.parametrize("character", [",", "(", ")", "a,", "(,", "a in (b,c),", " "])
def test_a_selector_of_any_length_takes_no_time(character: str) -> None:
    assert sum(map(len, _terms(character * 100_000))) <= len(character) * 100_000  # in milliseconds, not minutes
    with pytest.raises(UserError, match=r"selector of .+ characters: at most 4,096 are read"):
        read_selector(character * 5_000)


def test_the_term_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UserError, match=r"^selector 'b c' of 'a=1,b c' cannot be read"):
        read_selector("a=1,b c")


def test_labels_meet_a_selector_that_was_read() -> None:
    selector = read_selector("team in (nlp, cv),tier!=test,gpu,!old")
    assert matches(selector, {"team": "cv", "gpu": ""})
    for labels in ({"team": "cv"}, {"team": "x", "gpu": ""}, {"team": "cv", "gpu": "", "tier": "test"}):
        assert not matches(selector, labels)
    assert not matches(selector, {"team": "cv", "gpu": "", "old": "1"})
