"""The configuration inside OpenPAI's services-configuration.yaml."""

import textwrap

import pytest

from hived_config.openpai import inner_text, is_plainly_own
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of

OUTER = """\
cluster:
  common: {cluster-id: pai}
hivedscheduler:
  webservice-port: 30096
  config: |
INNER
rest-server: {x: 1}
"""


def inside(text: str) -> str:
    """A services-configuration.yaml with this as the scheduler's configuration."""
    return OUTER.replace("INNER\n", textwrap.indent(text, "    "))


def test_a_configuration_inside_an_openpai_file_is_read_like_a_plain_one() -> None:
    assert cluster_of(inside(SOUND)) == cluster_of(SOUND)


def test_mistakes_have_their_line_in_the_outer_file() -> None:
    text = inside(changed("cellAddress: n0", "cellAdress: n0"))
    (mistake,) = mistakes_of(text)
    line = next(number for number, line in enumerate(text.splitlines(), start=1) if "cellAdress" in line)
    place = "hivedscheduler.config.physicalCluster.physicalCells[0].cellChildren[0].cellAdress"
    assert mistake.startswith(f"f:{line}: {place}: found unknown key")


def test_a_syntax_error_has_its_line_in_the_outer_file() -> None:
    (mistake,) = mistakes_of(inside("physicalCluster: {}\n\tx: 1\n"))
    assert mistake.startswith("f:7: found a tab, expected spaces")


def test_blank_lines_and_comments_before_the_configuration_count() -> None:
    (mistake,) = mistakes_of(inside("\n# a comment\n\nphysicalClusters: {}\nvirtualClusters: {}\n"))
    assert mistake.startswith("f:9: hivedscheduler.config.physicalClusters: found unknown key")


def test_a_configuration_in_quotes_is_read_as_well() -> None:
    escaped = SOUND.replace("\n", "\\n")
    assert cluster_of(f'hivedscheduler: {{config: "{escaped}"}}\n') == cluster_of(SOUND)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("hivedscheduler: {port: 1}", "f:1: hivedscheduler: found no config"),
        ("hivedscheduler:", "f:1: hivedscheduler: found no config"),
        ("hivedscheduler:\n  config:\n    physicalCluster: {}", "f:3: hivedscheduler.config: found a mapping"),
        ("hivedscheduler:\n  ? [a, b]\n  : x", "f:2: hivedscheduler: found no config"),
        ("hivedscheduler: {config: }", "f:1: hivedscheduler.config: found nothing"),
    ],
)
def test_an_openpai_file_without_a_configuration_as_text_is_a_mistake(text: str, mistake: str) -> None:
    assert mistakes_of(text) == [f"{mistake}, expected the scheduler's configuration as text (config: |)"]


def test_an_empty_configuration_inside_an_openpai_file_is_a_mistake() -> None:
    assert mistakes_of("hivedscheduler:\n  config: ''\n") == [
        "f:1: found an empty document, expected a scheduler configuration"
    ]


def test_a_configuration_that_is_given_twice_is_a_mistake_beside_those_in_the_first() -> None:
    text = "hivedscheduler:\n  config: |\n    physicalCluster: 1\n  config: |\n    {}\nhivedscheduler: {}\n"
    assert [mistake.split(", expected")[0] for mistake in mistakes_of(text)] == [
        "f:3: hivedscheduler.config: found no virtualClusters",
        "f:3: hivedscheduler.config.physicalCluster: found 1",
        "f:4: hivedscheduler.config: found 'config' given twice (first on line 2)",
        "f:6: hivedscheduler: found 'hivedscheduler' given twice (first on line 1)",
    ]


def test_a_misspelt_config_is_recognised() -> None:
    assert mistakes_of("hivedscheduler:\n  confg: |\n    {}\n") == [
        "f:2: hivedscheduler: found no config, expected the scheduler's configuration as text (config: |) "
        "(did you mean config instead of confg?)"
    ]


def test_a_configuration_of_its_own_is_known_for_one_without_reading_it() -> None:
    assert is_plainly_own(SOUND)


@pytest.mark.parametrize(
    "key",
    [
        "hivedscheduler",
        '"hivedscheduler"',
        '"hived\\x73cheduler"',
        '? "hivedsched\\\n  uler"\n',
        "&key hivedscheduler",
        "? |-\n  hivedscheduler\n",
        "!!str hivedscheduler",
    ],
)
def test_a_file_with_a_section_for_the_scheduler_is_never_taken_for_its_own_configuration(key: str) -> None:
    text = f"{key}: {{config: inner}}\nrest-server: {{password: secret}}\n"
    assert (inner_text(text, "f"), is_plainly_own(text)) == ("inner", False)
