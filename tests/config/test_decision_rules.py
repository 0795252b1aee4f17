"""The key `rules` is read as written, and stays the reference's rules without it."""

import pytest

from hived.values.specs import Rules
from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_config.settings import NAMES, value_of
from tests.config.sound_file import SOUND


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", Rules.HIVED),
        ("rules: hived\n", Rules.HIVED),
        ("rules: 2\n", Rules.BETTER),
        ("rules: '2'\n", Rules.BETTER),
    ],
)
def test_a_file_says_its_rules(line: str, expected: Rules) -> None:
    assert load_text(line + SOUND, "f", environ={}).cluster.rules is expected


@pytest.mark.parametrize(
    ("written", "found", "hint"),
    [
        ("1", "1", ""),
        ("HiveD", "HiveD", " (did you mean hived?)"),
        ("[2]", "a list", ""),
        ("''", "the text ''", ""),
        ("", "nothing", ""),
        ("null", "nothing", ""),
        ("2.0", "2.0", ""),
    ],
)
def test_other_rules_are_a_mistake(written: str, found: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"rules: {written}\n" + SOUND, "f", environ={})
    assert [str(each) for each in caught.value.mistakes] == [f"f:1: rules: found {found}, expected hived or 2{hint}"]


def test_every_set_of_rules_has_a_name_and_a_value() -> None:
    assert NAMES.keys() == set(Rules)
    assert [value_of(rules) for rules in Rules] == ["hived", 2]
