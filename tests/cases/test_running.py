"""A running job says of itself that its node is dead, or that its guarantee is gone."""

from datetime import UTC, datetime

import pytest

from hived_cli.helpers.waits import troubles
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.api.inspection import ConfigClient
from hived_extender.api.waiting import BadNode, Job
from tests.cases.played import Played, nodes_config, pod
from tests.expecting import expect_soon
from tests.extender.waiting.office import Office

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(4, 2, other_vc="other: {virtualCells: []}")


def job(played: Played, name: str) -> Job:
    """A job as `hived why` has it, and lists, the same."""
    found = played.inspector.why(f"default/{name}")
    assert found is not None
    return found.job


def test_a_job_on_a_node_that_is_not_ready_says_so() -> None:
    office = Office()
    office.run("train", leaf_type="H100")
    (node,) = office.why("train").job.nodes
    office.node(node, is_ready=False)
    found = office.why("train").job
    assert (found.state, found.sentence) == ("Running", f"node {node} is NotReady (since 14:00)")


def test_a_gang_names_the_nodes_that_are_bad_and_no_others() -> None:
    office = Office()
    office.run("train", "2x8", leaf_type="H100", is_gang=True)
    first, second = office.why("train").job.nodes
    office.node(second, is_cordoned=True)
    office.node(
        next(name for name in ("dgx-1", "dgx-2", "dgx-3", "dgx-4") if name not in (first, second)), is_ready=False
    )
    assert [one.node for one in office.why("train").job.bad_nodes] == [second]


def test_a_job_whose_devices_are_lost_says_so() -> None:
    office = Office()
    office.run("train", leaf_type="H100")
    (node,) = office.why("train").job.nodes
    office.node(node, gpus=6)
    assert node in office.why("train").job.sentence


def push(played: Played, config: str) -> None:
    """Put another configuration in force, whatever it takes from running work."""
    base = played.running.extender.configurations.describe().version
    client = ConfigClient(played.inspector)
    agreed = {one.name: one.verdict for one in client.plan(config, "new.yaml").groups.affected}
    answer = client.push(ConfigPushArgs(config, base_version=base, allow_downgrade=True, agreed=agreed))
    assert answer.version, answer.message


def test_a_job_whose_guarantee_a_push_took_says_since_which_version(played: Played) -> None:
    played.create(pod("train", 4))
    played.expect_running("train")
    push(played, CONFIG.replace("[{cellType: NODE, cellNumber: 2}]", "[]"))
    found = expect_soon(lambda: (one := job(played, "train")).demoted and one, every_s=0.1)
    assert (found.state, found.sentence) == ("Running", "opportunistic since version 2")


def test_it_says_nothing_once_it_has_its_guarantee_back(played: Played) -> None:
    played.create(pod("train", 4))
    played.expect_running("train")
    push(played, CONFIG.replace("[{cellType: NODE, cellNumber: 2}]", "[]"))
    expect_soon(lambda: job(played, "train").demoted, every_s=0.1)
    push(played, CONFIG)
    expect_soon(lambda: not job(played, "train").sentence, every_s=0.1)
    assert not job(played, "train").demoted


def test_a_job_that_was_born_opportunistic_has_lost_nothing(played: Played) -> None:
    played.create(pod("train", 4, priority=-1))
    played.expect_running("train")
    assert expect_soon(lambda: job(played, "train")).demoted == ""


def test_a_job_on_sound_nodes_says_nothing(played: Played) -> None:
    played.create(pod("train", 4))
    played.expect_running("train")
    other = next(name for name in ("n1", "n2") if name != played.running_pods()["train"])
    played.patch_node(other, {"spec": {"unschedulable": True}})
    expect_soon(lambda: played.inspector.nodes(is_bad=True), every_s=0.1)
    assert job(played, "train").sentence == ""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Job(name="j", state="Running"), ""),
        (
            Job(name="j", state="Running", bad_nodes=[BadNode("dgx-1", "NotReady", "2026-11-28T14:02:00Z")]),
            ", node dgx-1 NotReady for 24s",
        ),
        (Job(name="j", state="Running", demoted="since version 7"), ", opportunistic since version 7"),
        (
            Job(name="j", state="Running", bad_nodes=[BadNode(f"n{i}", "cordoned") for i in range(5)]),
            ", node n0 cordoned, node n1 cordoned, node n2 cordoned, 2 more nodes cannot be used",
        ),
    ],
)
def test_a_command_shows_the_troubles_after_the_state(found: Job, told: str) -> None:
    assert troubles(found, datetime(2026, 11, 28, 14, 2, 24, tzinfo=UTC)) == told
