"""Plain values of the core."""

from dataclasses import fields, replace

from hived.values.specs import GroupSpec, MemberSpec, PodSpec

EVERY_FIELD = PodSpec(
    "vc", 7, 2, GroupSpec("one", (MemberSpec(3, 2),)), "pin", "GPU", True, True, False, "RACK", False, "mate", True
)


def test_the_spec_of_another_group_differs_in_its_name_alone() -> None:
    expected = replace(EVERY_FIELD, group=replace(EVERY_FIELD.group, name="two"))
    assert EVERY_FIELD.of_group("two") == expected


def test_it_may_ignore_suggested_nodes_or_not() -> None:
    assert EVERY_FIELD.of_group("one", ignores=True) == replace(EVERY_FIELD, ignore_suggested_nodes=True)


def test_no_field_of_that_spec_has_its_default() -> None:
    defaults = PodSpec("", 0, 0, GroupSpec("", ()))
    assert [f.name for f in fields(PodSpec) if getattr(defaults, f.name) == getattr(EVERY_FIELD, f.name)] == []
