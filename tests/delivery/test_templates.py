"""Variants that are put on top of each other come apart again by their conditions."""

import pytest

from delivery.templates import ABSENT, Each, More, Scalar, Template, Text, When, render, superpose

A, B = frozenset({"a"}), frozenset({"a", "b"})
NEITHER, ONLY_B = frozenset[str](), frozenset({"b"})
CONDITIONS = {"a": "$.a", "b": "$.b"}


def test_equal_variants_need_no_condition() -> None:
    assert superpose({A: {"x": [1, {"name": "y"}]}, NEITHER: {"x": [1, {"name": "y"}]}}, CONDITIONS) == {
        "x": [1, {"name": "y"}]
    }


def test_a_value_that_differs_depends_on_the_flag_that_decides_it() -> None:
    variants = {NEITHER: {"x": 1}, A: {"x": 1}, ONLY_B: {"x": 2}, B: {"x": 2}}
    assert superpose(variants, CONDITIONS) == {"x": When("$.b", 2, 1)}


def test_an_element_that_only_some_have_stands_between_its_neighbours() -> None:
    variants = {NEITHER: ["first", "last"], A: ["first", "more", "last"]}
    assert superpose(variants, CONDITIONS) == ["first", When("$.a", "more"), "last"]


def test_elements_of_one_name_are_compared_inside() -> None:
    variants = {NEITHER: [{"name": "x", "port": 1}], A: [{"name": "x", "port": 2}]}
    assert superpose(variants, CONDITIONS) == [{"name": "x", "port": When("$.a", 2, 1)}]


def test_a_flag_that_decides_whether_there_is_anything_is_outermost() -> None:
    variants = {NEITHER: ABSENT, A: ABSENT, ONLY_B: 1, B: 2}
    assert superpose(variants, CONDITIONS) == When("$.b", When("$.a", 2, 1), ABSENT)


def test_variants_that_no_flag_tells_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="no flag"):
        superpose({A: 1, NEITHER: 2}, {"b": "$.b"})


def test_neighbours_under_one_condition_share_it() -> None:
    assert render({"x": [When("c", 1), When("c", 2), 3]}).splitlines() == [
        "x:", "{{- if c }}", "- 1", "- 2", "{{- end }}", "- 3"
    ]  # fmt: skip


def test_an_element_begins_with_a_key_that_is_always_there() -> None:
    assert render([{"x": When("c", 1), "name": "thing"}]).splitlines() == [
        "- name: thing", "{{- if c }}", "  x: 1", "{{- end }}"
    ]  # fmt: skip


def test_texts_that_yaml_would_read_as_something_else_are_quoted() -> None:
    assert render({"a": "true", "b": "1", "c": "", "d": "plain", "e": "x: y"}).splitlines() == [
        'a: "true"', 'b: "1"', 'c: ""', "d: plain", 'e: "x: y"'
    ]  # fmt: skip


def test_places_of_values_are_expressions() -> None:
    node = {
        "scalar": Scalar("$.x"),
        "within": Scalar("$.x", "--flag="),
        "text": Text("$.t"),
        "line": Template("in {{ $.l }}"),
        "each": [Each("$e", "$.list", {"name": Scalar("$e")})],
        More("$.more"): More("$.more"),
    }
    assert render(node).splitlines() == [
        "scalar: {{ $.x }}",
        'within: "--flag={{ $.x }}"',
        "text: |",
        '{{ $.t | trimSuffix "\\n" | indent 2 }}',
        "line: >-",
        "  in {{ $.l }}",
        "each:",
        "{{- range $e := $.list }}",
        "- name: {{ $e }}",
        "{{- end }}",
        "{{- with $.more }}",
        "{{- toYaml . | nindent 0 }}",
        "{{- end }}",
    ]


def test_a_text_that_helm_would_evaluate_is_refused() -> None:
    with pytest.raises(ValueError, match="means something to Helm"):
        render({"x": "{{ evil }}"})
