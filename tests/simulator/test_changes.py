"""Changes as they are written on the command line."""

from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_simulator.changes import Act, parse_changes
from hived_simulator.traces.fields import parse_duration
from tests.simulator.builders import NODE, cluster_of
from tests.simulator.test_checkpoints import CONFIG


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600), ("1w", 604800)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert parse_duration(text, "--grace") == seconds


@pytest.mark.parametrize("text", ["", "h", "-3h", "1e3", "2 h", "inf", "nan", "1h30m", "٣h"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UserError, match=r"--grace: .*no length of time; expected a number with s, m, h, d or w"):
        parse_duration(text, "--grace")


def test_changes_come_in_order_of_time() -> None:
    changes = parse_changes(["heal=n1@2h", "drain=rack-3@1h", "fail=a@b@90s"])
    assert [(change.at_s, change.act, change.cells) for change in changes] == [
        (90, Act.FAIL, ("a@b",)),
        (3600, Act.DRAIN, ("rack-3",)),
        (7200, Act.HEAL, ("n1",)),
    ]


@pytest.mark.parametrize("text", ["drain", "drain=@2h", "drain=rack-3", "explode=n1@2h", "=n1@2h", ""])
def test_what_is_no_change(text: str) -> None:
    with pytest.raises(UserError, match=r"expected drain\|cordon\|fail\|heal=CELL@TIME"):
        parse_changes([text])


def test_added_cells_come_after_those_that_are_there() -> None:
    spec = cluster_of(2, a={NODE: 1})
    new = parse_changes(["add=2xRACK@1d"])[0].configuration(spec)
    assert new is not None
    assert [cell.address for cell in new.physical_cells] == ["rack-0", "rack-1", "added-0-0", "added-0-1"]


def test_a_change_of_health_leaves_the_configuration_alone() -> None:
    assert parse_changes(["fail=n1@1s"])[0].configuration(cluster_of(1)) is None


@pytest.mark.parametrize("act", ["add", "push"])
def test_a_file_is_the_configuration_from_then_on(tmp_path: Path, act: str) -> None:
    (tmp_path / "2xnext.yaml").write_text(CONFIG)
    change = parse_changes([f"{act}={tmp_path}/2xnext.yaml@1h"])[0]
    assert change.text == f"{act}=2xnext.yaml@1h"
    new = change.configuration(cluster_of(1))
    assert new is not None
    assert list(new.virtual_clusters) == ["a", "b", "c"]
