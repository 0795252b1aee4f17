"""`hived migrate kueue`: setups of Kueue become sound configurations and quota trees, and each loss has its line."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from hived.values.errors import UserError
from hived_cli import main
from hived_cli.migrate import fields
from hived_config.loader import Configuration, load_text
from hived_extender.jobs.quotas.tree import QuotaTree, read_tree
from tests.extender.queues.embedded_jobs import JOBS, PODS, TREES, Jobs, jobs_on
from tests.places import ROOT

GPU = "nvidia.com/gpu"
Object = dict[str, Any]


def obj(kind: str, name: str, spec: Object | None = None, version: str = "v1beta2", **more: Any) -> Object:
    """An object of Kueue; a LocalQueue's name is NAMESPACE/NAME."""
    namespace, _, own = name.rpartition("/")
    metadata = {"name": own} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": spec or {}, **more}


def flavor(name: str, product: str = "", **more: Any) -> Object:
    """A flavor of the nodes of a product."""
    return obj("ResourceFlavor", name, {"nodeLabels": {f"{GPU}.product": product or name.upper()}, **more})


def quota(nominal: object, resource: str = GPU, **limits: object) -> Object:
    """The quota of one resource."""
    return {"name": resource, "nominalQuota": nominal, **limits}


def groups(**by_flavor: Object | list[Object]) -> list[Object]:
    """A resource group of these flavors with their quotas."""
    flavors = [{"name": name, "resources": own if isinstance(own, list) else [own]} for name, own in by_flavor.items()]
    return [{"coveredResources": [each["name"] for each in flavors[0]["resources"]], "flavors": flavors}]


def queue(name: str, cohort: str = "", **spec: Any) -> Object:
    """A ClusterQueue for all namespaces, unless it has a selector; None is no selector."""
    own = {"namespaceSelector": {}} | ({"cohortName": cohort} if cohort else {}) | spec
    return obj("ClusterQueue", name, {key: value for key, value in own.items() if value is not None})


def node(name: str, product: str, count: int = 8, resource: str = GPU, **labels: str) -> Object:
    """A node with devices of a product."""
    amounts = {"cpu": "64", "memory": "512Gi", resource: str(count)}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"{GPU}.product": product, **labels}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


NODES = [node(f"a{i}", "A100", rack=f"r{i // 2}") for i in range(4)] + [node(f"h{i}", "H100") for i in range(2)]


class Migrated:
    """What became of some objects."""

    def __init__(self, answer: Object) -> None:
        self.answer = answer

    @property
    def configuration(self) -> Configuration:
        """The configuration, without mistakes."""
        return load_text(self.answer["configuration"], "made", environ={})

    @property
    def tree(self) -> QuotaTree:
        """The quota tree, which breaks no rule."""
        return read_tree(self.answer["quotaTree"])

    def cells(self, vc: str) -> dict[str, int]:
        """The cells of a virtual cluster."""
        spec = self.configuration.cluster.virtual_clusters[vc]
        return {each.cell_type: each.cell_count for each in spec.virtual_cells}

    def remarks(self, *words: str) -> list[str]:
        """The fields that are remarked on with these words."""
        return [each["field"] for each in self.answer["remarks"] if all(word in each["text"] for word in words)]

    @property
    def lost(self) -> set[str]:
        """The fields without a counterpart."""
        return {each["field"] for each in self.answer["remarks"] if each["isLost"]}


@pytest.fixture
def run(tmp_path: Path):
    """Run the command with objects in a file of their own, and nodes; words of the command line come last."""

    def ran(objects: object, *words: str, nodes: list[Object] | None = NODES) -> Result:
        file = tmp_path / "kueue.yaml"
        file.write_text(objects if isinstance(objects, str) else yaml.safe_dump_all(objects, sort_keys=False))
        given = []
        if nodes is not None:
            (tmp_path / "nodes.json").write_text(json.dumps({"items": nodes}))
            given = ["--nodes", str(tmp_path / "nodes.json")]
        return CliRunner().invoke(main, ["migrate", "kueue", str(file), *given, *words])

    return ran


@pytest.fixture
def migrate(run):
    """The result for some objects, which have no mistake."""

    def migrated(*objects: Object, nodes: list[Object] | None = NODES, options: tuple[str, ...] = ()) -> Migrated:
        done = run(objects, "--format", "json", *options, nodes=nodes)
        assert done.exit_code == 0, done.output
        return Migrated(json.loads(done.stdout))

    return migrated


# ---- setups


def test_a_quota_becomes_whole_nodes_of_its_flavor(migrate) -> None:
    found = migrate(flavor("a100"), flavor("h100"), queue("q", resourceGroups=groups(a100=quota(16), h100=quota(8))))
    assert found.cells("q") == {"a100-NODE": 2, "h100-NODE": 1}


def test_pods_choose_a_flavor_by_its_labels(migrate) -> None:
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8))))
    assert found.configuration.rules.node_labels == {"a100": {f"{GPU}.product": "A100"}}


def test_flavors_of_one_product_are_leaf_cell_types_of_their_own(migrate) -> None:
    spot = [node("s0", "A100", pool="spot"), node("d0", "A100", pool="demand")]
    flavors = [obj("ResourceFlavor", each, {"nodeLabels": {"pool": each}}) for each in ("spot", "demand")]
    found = migrate(*flavors, queue("q", resourceGroups=groups(spot=quota(8), demand=quota(8))), nodes=spot)
    assert found.cells("q") == {"spot-NODE": 1, "demand-NODE": 1}


def test_a_node_is_of_the_flavor_that_asks_for_most_of_its_labels(migrate) -> None:
    every = obj("ResourceFlavor", "every")
    found = migrate(every, flavor("h100"), queue("q", resourceGroups=groups(every=quota(32), h100=quota(16))))
    assert found.cells("q") == {"every-NODE": 4, "h100-NODE": 2}


def test_single_devices_of_a_quota_are_single_cells_that_pods_may_combine(migrate) -> None:
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(12))))
    assert found.cells("q") == {"a100-NODE": 1, "a100-NODE.a100": 4}
    assert "combine: true" in found.answer["configuration"]
    assert found.remarks("4 of 12 are no whole node") == ["spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"]


def test_quotas_beyond_the_hardware_are_promised_as_far_as_it_goes(migrate) -> None:
    both = [queue(name, resourceGroups=groups(h100=quota(12))) for name in ("a", "b")]
    found = migrate(flavor("h100"), *both)
    assert (found.cells("a"), found.cells("b")) == ({"h100-NODE": 1}, {"h100-NODE": 1})
    assert len(found.remarks("only 8", "are left to be promised")) == 2


def test_a_resource_that_no_node_has_gets_no_cells_and_a_remark(migrate) -> None:
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=[quota(8), quota(4, "example.com/fpga")])))
    assert found.cells("q") == {"a100-NODE": 1}
    assert found.remarks("no node of flavor a100 has example.com/fpga")


def test_a_flavor_that_no_node_has_is_remarked_on(migrate) -> None:
    found = migrate(flavor("a100"), flavor("b200"), queue("q", resourceGroups=groups(a100=quota(8))))
    assert found.remarks("no node with devices is of this flavor") == ["spec.nodeLabels"]


def test_cpus_of_nodes_without_devices_become_cells_if_wanted(migrate) -> None:
    machine = {"kind": "Node", "metadata": {"name": "c0", "labels": {"pool": "cpu"}},
               "status": {"allocatable": {"cpu": "16", "memory": "64Gi"}}}  # fmt: skip
    pool = obj("ResourceFlavor", "cpus", {"nodeLabels": {"pool": "cpu"}})
    found = migrate(pool, queue("q", resourceGroups=groups(cpus=quota(8, "cpu"))), nodes=[machine], options=("--cpu",))
    assert found.cells("q") == {"cpus-NODE.cpus": 8}


def test_levels_of_a_topology_are_cells_and_names_of_wishes(migrate) -> None:
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    found = migrate(
        obj("Topology", "t", levels),
        flavor("a100", topologyName="t"),
        queue("q", resourceGroups=groups(a100=quota(24))),
    )
    assert found.cells("q") == {"a100-RACK.a100-NODE": 3}
    assert found.configuration.rules.topology_levels == {"rack": "a100-RACK"}


def test_borrowing_and_lending_limits_are_those_of_the_quota(migrate) -> None:
    found = migrate(
        flavor("a100"),
        queue("a", "gpus", resourceGroups=groups(a100=quota(16, borrowingLimit=8, lendingLimit=4))),
        queue("b", "gpus", resourceGroups=groups(a100=quota(16))),
        queue("alone", resourceGroups=groups(a100=quota(0))),
    )
    quotas = found.tree.quotas
    limited, free, alone = (quotas[name] for name in ("root/gpus/a", "root/gpus/b", "root/alone"))
    assert (limited.min[GPU], limited.max[GPU], limited.lend_limit[GPU]) == (16, 24, 4)
    assert (free.min[GPU], free.max[GPU], alone.max[GPU]) == (16, 32, 0)
    borrows = found.configuration.rules.queueing
    assert [borrows.of(vc).borrows for vc in ("a", "b", "alone")] == [True, True, False]


def test_cohorts_below_cohorts_are_quotas_below_quotas(migrate) -> None:
    shared = {"resourceGroups": groups(a100=quota(8, borrowingLimit=0, lendingLimit=2)), "parentName": "all"}
    found = migrate(
        flavor("a100"),
        obj("Cohort", "team", shared),
        queue("a", "team", resourceGroups=groups(a100=quota(8))),
        queue("b", "all", resourceGroups=groups(a100=quota(8))),
    )
    quotas = found.tree.quotas
    assert list(quotas) == ["root", "root/all", "root/all/team", "root/all/team/a", "root/all/b"]
    team, own, other = (quotas[name] for name in ("root/all/team", "root/all/team/a", "root/all/b"))
    assert (team.min[GPU], team.max[GPU], team.lend_limit[GPU]) == (16, 16, 2)
    assert (own.max[GPU], other.max[GPU]) == (16, 24)


def test_quotas_of_several_flavors_are_one_sum_in_the_tree(migrate) -> None:
    own = groups(a100=quota(8, borrowingLimit=8), h100=quota(8, borrowingLimit=0))
    found = migrate(flavor("a100"), flavor("h100"), queue("q", "c", resourceGroups=own),
                    queue("r", "c", resourceGroups=groups(a100=quota(24))))  # fmt: skip
    assert (found.tree.quotas["root/c/q"].min[GPU], found.tree.quotas["root/c/q"].max[GPU]) == (16, 24)


@pytest.mark.parametrize(
    ("a100", "h100", "most"),
    [
        ({}, {}, 48),
        ({"borrowingLimit": 4}, {}, 12 + 24),
        ({}, {"borrowingLimit": 0}, 24 + 8),
        ({"borrowingLimit": 4}, {"borrowingLimit": 2}, 12 + 10),
        ({"borrowingLimit": 400}, {}, 48),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["queue", "cohort"])
def test_a_limit_of_one_flavor_bounds_the_sum_and_is_remarked_on(a100, h100, most: int, kind: str, migrate) -> None:
    """Others have 16 of each flavor."""
    own = groups(a100=quota(8, **a100), h100=quota(8, **h100))
    cohort = obj("Cohort", "q", {"parentName": "c", "resourceGroups": own})
    limited = queue("q", "c", resourceGroups=own) if kind == "queue" else cohort
    others = queue("r", "c", resourceGroups=groups(a100=quota(16), h100=quota(16)))
    found = migrate(flavor("a100"), flavor("h100"), limited, others)
    assert found.tree.quotas["root/c/q"].max[GPU] == most
    fields = [
        f"spec.resourceGroups[0].flavors[{i}].resources[0].borrowingLimit"
        for i, each in enumerate((a100, h100))
        if each
    ]
    assert found.remarks(f"of all flavors count together: at most {most}") == fields


def test_a_queue_borrows_of_its_own_flavors_alone(migrate) -> None:
    found = migrate(
        flavor("a100"),
        flavor("h100"),
        queue("q", "c", resourceGroups=groups(a100=quota(8))),
        queue("r", "c", resourceGroups=groups(a100=quota(8), h100=quota(16, lendingLimit=4))),
    )
    assert found.tree.quotas["root/c/q"].max[GPU] == 16
    assert found.remarks("of all flavors count together in what it lends") == [
        "spec.resourceGroups[0].flavors[1].resources[0].lendingLimit"
    ]


def test_a_resource_that_others_alone_have_a_quota_of_is_remarked_on(migrate) -> None:
    both = groups(a100=[quota(8), quota(64, "cpu")])
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8))), queue("r", resourceGroups=both))
    assert found.remarks("no quota of cpu, which others have: its jobs are guaranteed none") == ["spec.resourceGroups"]


def test_a_cohort_may_have_the_name_of_the_root_or_of_a_queue(migrate) -> None:
    found = migrate(
        flavor("a100"),
        queue("a", "root", resourceGroups=groups(a100=quota(8))),
        queue("gpus", "gpus", resourceGroups=groups(a100=quota(8))),
    )
    assert [leaf.name for leaf in found.tree.leaves()] == ["root/cohort-root/a", "root/gpus-2/gpus"]


def test_weights_of_fair_sharing_are_those_of_queues(migrate) -> None:
    own = [queue(f"q{i}", "c", fairSharing={"weight": weight}, resourceGroups=groups(a100=quota(8)))
           for i, weight in enumerate(("2", "500m", "0"))]  # fmt: skip
    found = migrate(flavor("a100"), *own, obj("Cohort", "c", {"fairSharing": {"weight": "3"}}))
    assert [found.configuration.rules.queueing.of(f"q{i}").weight for i in range(3)] == [2, 0.5, 1]
    assert found.lost == {"spec.fairSharing.weight"}


@pytest.mark.parametrize(
    ("policies", "remarked"),
    [
        ({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}, []),
        ({"reclaimWithinCohort": "Never"}, ["reclaimWithinCohort"]),
        ({"reclaimWithinCohort": "LowerPriority"}, ["reclaimWithinCohort"]),
        ({"withinClusterQueue": "Never"}, ["withinClusterQueue"]),
        ({"withinClusterQueue": "LowerOrNewerEqualPriority"}, ["withinClusterQueue"]),
        ({"borrowWithinCohort": {"policy": "Never"}}, []),
        (
            {"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100}},
            ["borrowWithinCohort.policy", "borrowWithinCohort.maxPriorityThreshold"],
        ),
    ],
    ids=str,
)
def test_each_policy_of_preemption_that_means_less_is_remarked_on(policies, remarked, migrate) -> None:
    found = migrate(flavor("a100"), queue("q", "c", preemption=policies, resourceGroups=groups(a100=quota(8))))
    assert [each for each in found.remarks() if "preemption" in each] == [
        f"spec.preemption.{each}" for each in remarked
    ]


@pytest.mark.parametrize(
    ("strategies", "policy", "others"),
    [
        ([None], "Priority", 0),
        (["StrictFIFO"], "Block", 0),
        (["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"], "Priority", 1),
    ],
)
def test_the_strategy_of_most_queues_is_the_policy_of_all(strategies, policy, others, migrate) -> None:
    own = [queue(f"q{i}", resourceGroups=groups(a100=quota(8)), **({"queueingStrategy": each} if each else {}))
           for i, each in enumerate(strategies)]  # fmt: skip
    found = migrate(flavor("a100"), *own)
    assert found.configuration.rules.queueing.policy.value == policy
    assert len(found.remarks("spec.queuePolicy of the Queue of root/q0")) == others


def test_a_stopped_queue_starts_no_job(migrate) -> None:
    found = migrate(flavor("a100"), queue("q", stopPolicy="Hold", resourceGroups=groups(a100=quota(8))))
    assert found.tree.quotas["root/q"].max_jobs == 0


def test_a_namespace_with_one_queue_needs_no_words(migrate) -> None:
    found = migrate(
        flavor("a100"),
        queue("q", resourceGroups=groups(a100=quota(8))),
        obj("LocalQueue", "vision/main", {"clusterQueue": "q"}),
    )
    assert found.configuration.rules.access.default_virtual_cluster("vision", {}) == "q"
    assert found.tree.leaf_of_namespace["vision"].name == "root/q"
    (use,) = found.answer["localQueues"]
    assert (use["jobLabels"], use["podAnnotations"]) == ({}, {})


def test_jobs_of_a_namespace_with_two_queues_name_theirs(migrate) -> None:
    found = migrate(
        flavor("a100"),
        *(queue(name, resourceGroups=groups(a100=quota(8))) for name in ("q", "r")),
        *(obj("LocalQueue", f"vision/{name}", {"clusterQueue": name}) for name in ("q", "r")),
        obj("LocalQueue", "speech/r", {"clusterQueue": "r"}),
    )
    assert not found.tree.leaf_of_namespace
    labels = [(each["jobLabels"], each["podAnnotations"]) for each in found.answer["localQueues"]]
    label, annotation = "quota.scheduling.koordinator.sh/name", "hivedscheduler.microsoft.com/virtual-cluster"
    assert labels == [({label: "q"}, {annotation: "q"}), ({label: "r"}, {annotation: "r"}), ({label: "r"}, {})]


def test_a_selector_chooses_namespaces_where_there_is_no_local_queue(migrate) -> None:
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    found = migrate(flavor("a100"), queue("q", namespaceSelector=selector, resourceGroups=groups(a100=quota(8))))
    access = found.configuration.rules.access
    assert access.default_virtual_cluster("n", {"team": "a", "x": "1"}) == "q"
    assert access.default_virtual_cluster("n", {"team": "b", "x": "1"}) is None
    assert found.remarks("a quota knows namespaces by name alone") == ["spec.namespaceSelector"]


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"kubernetes.io/metadata.name": "a"}},
        {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]}]},
    ],
)
def test_namespaces_that_a_selector_names_are_in_the_lists_of_names(selector, migrate) -> None:
    found = migrate(flavor("a100"), queue("q", namespaceSelector=selector, resourceGroups=groups(a100=quota(8))))
    assert found.configuration.rules.access.default_virtual_cluster("a", {}) == "q"
    assert found.tree.leaf_of_namespace["a"].name == "root/q"
    assert found.remarks() == []


def test_a_queue_without_a_selector_is_for_no_namespace(migrate) -> None:
    found = migrate(
        flavor("a100"),
        queue("q", namespaceSelector=None, resourceGroups=groups(a100=quota(8))),
        obj("LocalQueue", "vision/main", {"clusterQueue": "q"}),
    )
    assert found.configuration.rules.access.default_virtual_cluster("vision", {}) is None
    assert found.remarks("Kueue admits no job") == ["spec.namespaceSelector"]


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ((0, 500, 1000), (0, 500, 1000)),
        ((-10, 100, 2_000_000), (-1, 10, 20)),
        ((10_000,), (10,)),
        ((0, 10_000), (0, 10)),
        ((-100, 10_000), (-1, 10)),
        ((-100, -5, 0, 7), (-1, -1, 0, 7)),
        ((-1,), (-1,)),
        ((1000, 1001), (10, 20)),
        ((), ()),
    ],
)
def test_priorities_keep_their_order(values, numbers, migrate) -> None:
    classes = [obj("WorkloadPriorityClass", f"p{i}", None, value=value) for i, value in enumerate(values)]
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8))), *map(without_spec, classes))
    assert found.configuration.rules.priority_classes == {f"p{i}": number for i, number in enumerate(numbers)}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (10_000, "becomes 10, in the same order and above jobs without a class (0)"),
        (-5, "becomes -1, opportunistic, as all below 0: below jobs without a class (0)"),
        (0, ""),
        (1000, ""),
    ],
)
def test_a_priority_that_changes_is_remarked_on(value: int, said: str, migrate) -> None:
    own = without_spec(obj("WorkloadPriorityClass", "p", value=value))
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8))), own)
    texts = [each["text"] for each in found.answer["remarks"] if each["field"] == "value"]
    assert [text[: len(said)] for text in texts] == [said] * bool(said)


def without_spec(manifest: Object) -> Object:
    """An object of a kind that has none."""
    return {key: value for key, value in manifest.items() if key != "spec"}


def test_hiveds_own_check_is_needed_no_more_and_others_are_lost(migrate) -> None:
    controllers = {
        "cells": "hivedscheduler.microsoft.com/admission-check",
        "prov": "kueue.x-k8s.io/provisioning-request",
    }
    checks = [obj("AdmissionCheck", name, {"controllerName": controller}) for name, controller in controllers.items()]
    strategy = {"admissionChecks": [{"name": name} for name in controllers]}
    asking = queue("q", admissionChecksStrategy=strategy, resourceGroups=groups(a100=quota(8)))
    found = migrate(flavor("a100"), *checks, asking)
    at = "spec.admissionChecksStrategy.admissionChecks"
    assert found.remarks("hived's own") == [f"{at}[0].name"]
    assert found.lost == {f"{at}[1].name"}


def test_words_of_v1beta1_are_read(migrate) -> None:
    spec = {"cohort": "c", "admissionChecks": ["x"], "namespaceSelector": {}, "resourceGroups": groups(a100=quota(8))}
    found = migrate(flavor("a100"), obj("ClusterQueue", "q", spec, "v1beta1"))
    assert "root/c/q" in found.tree.quotas
    assert found.lost == {"spec.admissionChecks[0]"}


def test_every_field_without_a_counterpart_has_its_line(run, migrate) -> None:
    spec = {
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}},
    }
    objects = [
        flavor("a100", nodeTaints=[{"key": "a", "effect": "NoSchedule"}], tolerations=[{"key": "a"}],
               resourceWeights={GPU: 2}),
        queue("q", resourceGroups=groups(a100=quota(8)), **spec),
        obj("LocalQueue", "n/q", {"clusterQueue": "q", "stopPolicy": "Hold", "fairSharing": {"weight": 2},
                                  "wallTimePolicy": {"wallTimeAllocatedHours": 3}}),
        obj("MultiKueueConfig", "m", {"clusters": ["a"]}),
    ]  # fmt: skip
    found = migrate(*objects)
    wanted = {f"spec.{each}" for each in (*spec, "nodeTaints", "tolerations", "resourceWeights", "stopPolicy",
                                          "fairSharing", "wallTimePolicy")}  # fmt: skip
    assert found.lost == {*wanted, ""}
    text = yaml.safe_dump_all(objects, sort_keys=False).splitlines()
    for each in found.answer["remarks"]:
        last = each["field"].rpartition(".")[2]
        assert last in "\n".join(text[each["line"] - 2 : each["line"]])


def test_a_field_of_a_newer_kueue_is_lost_and_nothing_else(migrate) -> None:
    found = migrate(flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8)), stopPolicies="Hold"))
    assert found.remarks("unknown key 'stopPolicies', did you mean stopPolicy?") == ["spec.stopPolicies"]
    assert found.cells("q") == {"a100-NODE": 1}


# ---- the ways in and out


def test_lists_json_folders_and_standard_input_are_read(tmp_path: Path, migrate) -> None:
    objects = [flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8)))]
    (tmp_path / "in").mkdir()
    lists = [
        ("flavors.json", "v1", "List", objects[:1]),
        ("queues.yml", "kueue.x-k8s.io/v1beta2", "ClusterQueueList", objects[1:]),
    ]
    for name, version, kind, items in lists:
        text = json.dumps({"apiVersion": version, "kind": kind, "items": items})
        (tmp_path / "in" / name).write_text(text)
    (tmp_path / "in" / "notes.txt").write_text("{")
    of_folder = CliRunner().invoke(main, ["migrate", "kueue", str(tmp_path / "in"), "--format", "json"])
    text = yaml.safe_dump_all(objects)
    of_input = CliRunner().invoke(main, ["migrate", "kueue", "-", "--format", "json"], input=text)
    trees = [json.loads(done.stdout)["quotaTree"] for done in (of_folder, of_input)]
    assert trees == [migrate(*objects).answer["quotaTree"]] * 2


def test_without_nodes_there_is_a_tree_and_the_way_to_a_configuration(run) -> None:
    done = run([flavor("a100"), queue("q", resourceGroups=groups(a100=quota(16)))], nodes=None)
    assert done.exit_code == 0
    assert read_tree(yaml.safe_load(done.stdout)).quotas["root/q"].min == {GPU: 16}
    assert "hived config generate --vc q=16" in done.stderr


def test_files_are_written_into_a_folder_and_never_replaced_unasked(run, tmp_path: Path) -> None:
    objects = [flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8)))]
    folder = tmp_path / "out"
    assert run(objects, "-o", str(folder)).exit_code == 0
    assert sorted(each.name for each in folder.iterdir()) == ["hivedscheduler.yaml", "quotas.yaml"]
    before = (folder / "quotas.yaml").read_text()
    again = run([flavor("a100"), queue("r", resourceGroups=groups(a100=quota(8)))], "-o", str(folder))
    assert (again.exit_code, (folder / "quotas.yaml").read_text()) == (1, before)
    assert "there already, give --force to replace" in again.stderr
    assert run(objects, "-o", str(folder), "--force").exit_code == 0


def test_the_same_objects_give_the_same_bytes(run) -> None:
    objects = [flavor("h100"), flavor("a100"), queue("q", "c", resourceGroups=groups(a100=quota(16), h100=quota(4)))]
    assert run(objects).stdout == run(objects, nodes=NODES[::-1]).stdout


def test_objects_of_others_are_counted_and_left_out(run) -> None:
    others = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}] * 2
    done = run([*others, flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8)))])
    assert "2 Namespace left out, no object of Kueue" in done.stderr


# ---- mistakes


SOUND = [flavor("a100"), queue("q", "c", resourceGroups=groups(a100=quota(8)))]


@pytest.mark.parametrize(
    ("objects", "word"),
    [
        ("a: [", "text that is not YAML"),
        ("- a\n", "expected an object of Kubernetes"),
        ("kind: ClusterQueue\n", "no apiVersion, expected apiVersion and kind"),
        ("apiVersion: kueue.x-k8s.io/v1beta2\n", "no kind, expected apiVersion and kind"),
        ("{{ .Values.queue }}\n", "a mapping as a key"),
        ("", "at least one ClusterQueue"),
        ([flavor("a100")], "found 1 ResourceFlavor, expected at least one ClusterQueue"),
        ([*SOUND, obj("ClusterQueues", "q")], "did you mean ClusterQueue?"),
        ([*SOUND, obj("Topology", "t", version="v1alpha1")], "kubectl get topologies.v1beta2.kueue.x-k8s.io"),
        ([*SOUND, obj("ClusterQueue", "r", version="v1")], "found version 'v1', expected v1beta1 or v1beta2"),
        ([*SOUND, SOUND[1]], "ClusterQueue q a second time"),
        ([*SOUND, {**SOUND[1], "metadata": {}}], "no name"),
        ([*SOUND, {**SOUND[1], "metadata": {"name": "A b"}}], "the name of the object"),
        ([*SOUND, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort"}], "no metadata"),
        ([flavor("b100"), SOUND[1]], "found flavor 'a100', expected a ResourceFlavor of these files"),
        ([flavor("a100", topologyName="t"), SOUND[1]], "found topology 't'"),
        ([*SOUND, obj("LocalQueue", "n/m", {"clusterQueue": "p"})], "found ClusterQueue 'p'"),
        ([*SOUND, obj("LocalQueue", "n/m")], "ClusterQueue ''"),
        ([*SOUND, *(obj("Cohort", a, {"parentName": b}) for a, b in ("cd", "dc"))], "a circle: c -> d -> c"),
        ([*SOUND, obj("Cohort", "c", {"parentName": "c"})], "a circle: c -> c"),
        ([flavor("a100"), queue("q", resourceGroups=groups(a100=quota(-1)))], "found -1, expected a quantity"),
        ([flavor("a100"), queue("q", resourceGroups=groups(a100=quota("many")))], "found many, expected a quantity"),
        ([flavor("a100"), queue("q", resourceGroups=groups(a100=quota([8])))], "found a list, expected a quantity"),
        ([flavor("a100"), queue("q", resourceGroups={"flavors": []})], "expected a list"),
        ([flavor("a100"), queue("q", resourceGroups=[None])], "found nothing, expected an item"),
        ([flavor("a100"), queue("q", resourceGroups=groups(a100=quota("1e99")))], "1e99, expected less than 92233720"),
        ([flavor("a100"), queue("q", resourceGroups=groups(a100=quota(8, borrowingLimit="10E")))], "10E, expected"),
        ([*SOUND, obj("LocalQueue", "Bad_NS/m", {"clusterQueue": "q"})], "Bad_NS, expected the name of a namespace"),
        ([flavor("a100"), queue("q", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "Bad_NS"}},
                                resourceGroups=groups(a100=quota(8)))], "kueue.yaml:"),
        ([flavor("a100"), queue("q", namespaceSelector={"matchExpressions": [{"key": "x", "operator": "Near"}]},
                                resourceGroups=groups(a100=quota(8)))], "kueue.yaml:"),
        ([*SOUND, queue("r", queueingStrategy="Fifo")], "expected StrictFIFO or BestEffortFIFO"),
        ([*SOUND, queue("r", stopPolicy="hold")], "did you mean Hold?"),
        ([*SOUND, queue("r", preemption="Never")], "expected a mapping"),
        ([*SOUND, queue("r", fairSharing={"weight": "-1"})], "quantity of at least 0"),
        ([*SOUND, without_spec(obj("WorkloadPriorityClass", "p")) | {"value": "high"}], "expected a whole number"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_nothing_is_written(objects, word: str, run, tmp_path: Path) -> None:
    done = run(objects, "-o", str(tmp_path / "out"))
    assert (done.exit_code, (tmp_path / "out").exists(), done.stdout) == (1, False, "")
    assert word in done.stderr
    assert "kueue.yaml" in done.stderr
    assert "Traceback" not in done.output


def test_every_mistake_of_all_files_is_told_at_once(run) -> None:
    spec = {"stopPolicy": "x", "queueingStrategy": "y", "fairSharing": {"weight": "z"}}
    done = run([*SOUND, queue("r", **spec), obj("LocalQueue", "n/m", {"clusterQueue": 7})])
    assert len([line for line in done.stderr.splitlines() if "kueue.yaml:" in line]) >= 3


def test_mistakes_in_values_hide_none_in_names(run) -> None:
    odd = queue("r", stopPolicy="x", resourceGroups=groups(b100=quota(8)))
    done = run([*SOUND, SOUND[1], odd, obj("LocalQueue", "n/m", {"clusterQueue": "p"})])
    for words in ("ClusterQueue q a second time", "spec.stopPolicy", "flavor 'b100'", "ClusterQueue 'p'"):
        assert words.lower() in done.stderr.lower()


def test_an_object_that_cannot_be_read_is_not_said_to_lack(run) -> None:
    done = run([{**flavor("a100"), "kind": "ResourceFlavour"}, SOUND[1]])
    assert "did you mean ResourceFlavor?" in done.stderr
    assert "flavor 'a100'" not in done.stderr
    assert "not checked yet, because of these mistakes: whether there are all objects that others name" in done.stderr


@pytest.mark.parametrize(
    ("nodes", "word"),
    [
        ([], "no node with devices belongs to a ResourceFlavor"),
        ([node("x", "V100")], "1 node of no ResourceFlavor, left out: x"),
    ],
)
def test_without_a_node_of_a_flavor_there_is_no_configuration(nodes, word: str, run) -> None:
    done = run(SOUND, nodes=nodes)
    assert (done.exit_code, done.stdout) == (1, "")
    assert word in done.stderr


def test_a_command_without_files_says_what_it_wants() -> None:
    done = CliRunner().invoke(main, ["migrate", "kueue"])
    assert done.exit_code == 2
    assert "expected files with Kueue's objects" in done.output


# ---- in use


def queue_names(jobs: Jobs) -> list[str]:
    """None while queues are about to begin."""
    with suppress(UserError):
        return [each.name for each in jobs.inspector.queues()]
    return []


def test_jobs_run_and_borrow_by_what_was_made_of_kueues_objects(migrate, tmp_path: Path) -> None:
    found = migrate(
        flavor("a100"),
        *(queue(name, "c", resourceGroups=groups(a100=quota(8, borrowingLimit=8))) for name in ("q", "r")),
        obj("LocalQueue", "default/q", {"clusterQueue": "q"}),
        nodes=NODES[:2],
    )
    with jobs_on(tmp_path, found.answer["configuration"]) as jobs:
        jobs.kube.create(TREES, found.answer["quotaTree"])
        jobs.expect(lambda: "root/c/q" in queue_names(jobs))
        for name in ("job-1", "job-2", "job-3"):
            jobs.create(name, vc="q", pods=1)
        jobs.expect(lambda: jobs.runs("job-1", "job-2"))
        jobs.expect(lambda: "Insufficient quota" in jobs.reason("job-3") and jobs.waits("job-3"))
        assert len(jobs.kube.get(PODS)["items"]) == 2
        assert len(jobs.kube.get(JOBS)["items"]) == 3


def test_the_page_has_every_field() -> None:
    page = (ROOT / "docs" / "migration-kueue.md").read_text()
    remedy = "bring it up to date: python -m hived_cli.migrate.fields docs/migration-kueue.md"
    assert fields.with_tables(page) == page, remedy
