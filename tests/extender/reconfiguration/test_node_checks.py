"""The nodes of a configuration to come: names that cannot be, names that the cluster does not have, bad nodes."""

from hived_config.loader import Configuration, load_text
from hived_extender.api.configuration import BadCells
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.judging import Judged, judge
from tests.extender.machine.small_cluster import CONFIG, NODES, SmallCluster, node

CELLS = "physicalCluster.physicalCells"
POSSIBLE = "a name that a Kubernetes node can have (at most 253 of a-z, 0-9, '-' and '.')"


def configuration(*names: str) -> Configuration:
    """The small configuration with these names for its nodes; "" leaves one out."""
    text = CONFIG
    for old, new in zip(NODES, names, strict=True):
        text = text.replace(f"{{cellAddress: {old}}}", f"{{cellAddress: {new}}}" if new else "{}")
    return load_text(text, "new.yaml", environ={})


SMALL = configuration(*NODES)


def test_nodes_that_are_all_there_are_nothing_to_tell() -> None:
    assert judge(SMALL, SMALL, [*NODES, "other"]) == Judged()


def test_an_impossible_name_is_refused_with_the_node_that_was_meant() -> None:
    judged = judge(SMALL, configuration("n0", "n1", "n2", "GPU_03"), [*NODES, "gpu-3.example.com"])
    refusal = f"new.yaml:8: {CELLS}: found node name 'GPU_03', expected {POSSIBLE} (did you mean gpu-3.example.com?)"
    assert judged == Judged((refusal,))


def test_where_nobody_knows_the_nodes_the_nearest_possible_name_is_meant() -> None:
    (refusal,) = judge(SMALL, configuration("n0", "n1", "n2", "GPU_3"), []).refusals
    assert refusal.endswith("(did you mean gpu-3?)")


def test_an_impossible_name_of_the_configuration_in_force_stays_a_warning() -> None:
    old = configuration("n0", "n1", "n2", "GPU_3")
    judged = judge(old, old, NODES)
    assert judged.refusals == ()
    assert [each.partition(": ")[0] for each in judged.warnings] == ["new.yaml:8"]


def test_an_unknown_name_that_is_nearly_that_of_a_node_has_a_warning_of_its_own() -> None:
    judged = judge(SMALL, configuration("n0", "n1", "n2", "dgx-03"), [*NODES, "dgx-3"])
    warning = (
        f"new.yaml:8: warning: {CELLS}: found node 'dgx-03', which the cluster does not have, expected one of its "
        "nodes (did you mean dgx-3?)"
    )
    assert judged == Judged((), (warning,))


def test_a_node_that_is_already_in_the_file_is_not_meant() -> None:
    (warning,) = judge(SMALL, configuration("n0", "n1", "n2", "n-0"), NODES).warnings
    assert "did you mean" not in warning


def test_other_unknown_names_share_one_warning() -> None:
    judged = judge(SMALL, configuration("n0", "a", "b", "c"), NODES)
    warning = (
        f"new.yaml:8: warning: {CELLS}: found 3 nodes that the cluster does not have: a, b, c, expected each to join "
        "later, as its cells are bad until then"
    )
    assert judged == Judged((), (warning,))


def test_placeholders_are_for_nodes_to_come() -> None:
    assert judge(SMALL, configuration("n0", "n1", "n2", "placeholder-1"), NODES) == Judged()


def test_a_configuration_without_any_node_of_the_cluster_is_refused() -> None:
    expected = "expected at least one: of the configuration in force, it has 4 (is this that of another cluster?)"
    refusal = f"new.yaml: {CELLS}: found no node that the cluster has, {expected}"
    assert judge(SMALL, configuration("a", "b", "c", "d"), NODES).refusals == (refusal,)


def test_it_is_not_where_the_one_in_force_has_none_either() -> None:
    assert judge(SMALL, configuration("a", "b", "c", "d"), ["control-plane"]).refusals == ()


def test_generated_names_are_warned_of_unless_the_cluster_has_such_nodes() -> None:
    new = configuration("n0", "n1", "n2", "")
    (warning,) = judge(SMALL, new, NODES).warnings
    assert "found a node without a name, called 3 for now" in warning
    assert judge(SMALL, new, [*NODES, "3"]) == Judged()


def test_a_plan_tells_how_many_nodes_would_be_bad() -> None:
    small = SmallCluster(bad_nodes=("n1",))
    one = Change(SMALL, configuration("n0", "n1", "n2", "late"), None, 1)
    outcome = one.outcome(*one.catch_up_with(small.service))
    assert outcome.report().bad == [BadCells("RACK.NODE", 2, 4, ["n1", "late"])]
    assert [each.partition(", expected")[0] for each in outcome.warnings] == [
        f"new.yaml:8: warning: {CELLS}: found a node that the cluster does not have: late"
    ]


def test_nodes_that_are_not_ours_are_known_too() -> None:
    small = SmallCluster()
    small.service.sync_nodes([node(name) for name in (*NODES, "late")])
    one = Change(SMALL, configuration("n0", "n1", "n2", "late"), None, 1)
    outcome = one.outcome(*one.catch_up_with(small.service))
    assert (outcome.warnings, outcome.report().bad) == ((), [])
