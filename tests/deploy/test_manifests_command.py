"""`hived manifests`: a user's values arrive where they belong, and values that cannot be used are refused."""

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_deploy.installation import DIGEST_ANNOTATION, SCHEDULER, kinds_of_queues
from hived_extender.jobs.access import ALLOW, EXEMPT, SYSTEM_NAMESPACES
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_jobs import submission
from hived_jobs.submission import Submission
from tests.deploy.installations import CA, SAMPLES, manifests
from tests.deploy.rules import RULES, of_kind, scheduler_configurations, webhooks

pytestmark = pytest.mark.sample(10)

TWO_VCS = """\
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 1, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: a}, {cellType: NODE, cellAddress: b}]
virtualClusters:
  %s: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
  %s: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
"""

QUEUES = "rules: 2\nqueues: {enabled: true}\n"


def write(tmp_path: Path, first: str = "one", second: str = "two", more: str = "") -> str:
    """A configuration with two virtual clusters."""
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(more + TWO_VCS % (first, second))
    return str(path)


def refusal(config: str, *options: str) -> str:
    """The message about options that cannot be used."""
    result = CliRunner().invoke(main, ["manifests", "--config", config, *options])
    assert result.exit_code == 1
    assert not result.stdout
    return result.stderr


def images(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {
        name: each["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, each in of_kind(objects, "Deployment")
    }


def scheduler_names(objects: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {
        name.removeprefix("ConfigMap/"): [profile["schedulerName"] for profile in config["profiles"]]
        for name, config in scheduler_configurations(objects)
    }


def test_the_configuration_is_printed_as_it_is(tmp_path: Path) -> None:
    config = write(tmp_path)
    objects = manifests("--config", config)
    (data,) = [each["data"] for name, each in of_kind(objects, "ConfigMap") if name == "ConfigMap/hived-config"]
    assert data == {"hivedscheduler.yaml": Path(config).read_text()}


def test_of_an_openpai_file_nothing_but_the_schedulers_part_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "services-configuration.yaml"
    password = "rest-server:\n  default-pai-admin-password: Not.For.Everybody\n"
    path.write_text(password + (SAMPLES / "services-configuration.yaml").read_text())
    objects = manifests("--config", str(path))
    assert "Not.For.Everybody" not in yaml.safe_dump_all(objects)
    assert "physicalCluster" in yaml.safe_dump_all(objects)


def test_images_and_replicas_are_the_users() -> None:
    objects = manifests("--image", "registry.example:5000/ai/hived:1.2", "--kube-scheduler-image", "ks:v1.33.13",
                        "--replicas", "3", "--one-scheduler")  # fmt: skip
    assert images(objects) == {
        "Deployment/hived": "registry.example:5000/ai/hived:1.2",
        f"Deployment/{SCHEDULER}": "ks:v1.33.13",
    }
    assert [each["spec"]["replicas"] for _, each in of_kind(objects, "Deployment")] == [3, 2]


@pytest.mark.parametrize("image", ["hived", "hived:latest", "registry.example:5000/hived", "a b:1", ""])
def test_an_image_that_may_be_another_one_tomorrow_is_refused(image: str, tmp_path: Path) -> None:
    if not image:
        assert images(manifests("--image", image))["Deployment/hived"].startswith("hived:")
        return
    assert "expected NAME:TAG" in refusal(write(tmp_path), "--image", image)


@pytest.mark.parametrize("namespace", ["default", "kube-system", "Upper", "a" * 64])
def test_a_namespace_that_is_not_hiveds_own_is_refused(namespace: str, tmp_path: Path) -> None:
    assert f"namespace '{namespace}'" in refusal(write(tmp_path), "--namespace", namespace)


@pytest.mark.parametrize("setting", ["kubeApiServerAddress: https://10.0.0.1:6443", "kubeConfigFilePath: /root/config"])
def test_credentials_that_the_pod_would_not_have_are_refused(setting: str, tmp_path: Path) -> None:
    assert f"{setting.partition(':')[0]}: found" in refusal(write(tmp_path, more=f"{setting}\n"))


def test_the_environment_of_who_prints_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_APISERVER_ADDRESS", "https://10.0.0.1:6443")
    monkeypatch.setenv("KUBECONFIG", write(tmp_path))
    assert manifests("--config", write(tmp_path))


def test_mistakes_of_the_configuration_are_listed(tmp_path: Path) -> None:
    assert "hivedscheduler.yaml:1" in refusal(write(tmp_path, more="virtualClutsers: {}\n"))


def test_pods_of_kube_scheduler_are_replaced_when_their_configuration_has_changed(tmp_path: Path) -> None:
    def digests(config: str) -> list[str]:
        found = [each for name, each in of_kind(manifests("--config", config), "Deployment") if SCHEDULER in name]
        return [each["spec"]["template"]["metadata"]["annotations"][DIGEST_ANNOTATION] for each in found]

    before = digests(write(tmp_path))
    assert digests(write(tmp_path)) == before
    renamed = digests(write(tmp_path, second="three"))
    assert [old == new for old, new in zip(before, renamed, strict=True)] == [True, False]
    assert digests(write(tmp_path, more="# new\n")) == before


def test_no_pod_of_hived_is_replaced_because_of_its_configuration(tmp_path: Path) -> None:
    def deployment(config: str) -> dict[str, Any]:
        return dict(of_kind(manifests("--config", config), "Deployment"))["Deployment/hived"]

    before = deployment(write(tmp_path))
    assert deployment(write(tmp_path, second="three", more="preemptionBy: kube-scheduler\n")) == before


def test_the_configuration_in_the_cluster_can_be_left_as_it_is(tmp_path: Path) -> None:
    config = write(tmp_path)
    rest = manifests("--config", config, "--without-config")
    (left_out,) = [each for each in manifests("--config", config) if each not in rest]
    assert (left_out["kind"], left_out["metadata"]["name"]) == ("ConfigMap", "hived-config")


def test_kinds_of_queues_are_installed_where_the_configuration_has_queues(tmp_path: Path) -> None:
    without = manifests("--config", write(tmp_path))
    objects = manifests("--config", write(tmp_path, more=QUEUES))
    known = {(each["kind"], each["metadata"]["name"]) for each in without}
    more = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert [name for kind, name in more if (kind, name) not in known] == [
        "hived-queues",
        "hived-queues",
        "hived-tenants-queues",
        "hived-tenants-queues",
        "kube-queue",
        "elasticquotatrees.scheduling.sigs.k8s.io",
        "queues.scheduling.x-k8s.io",
        "queueunits.scheduling.x-k8s.io",
    ]


def test_kinds_of_kube_queue_can_be_left_as_they_are(tmp_path: Path) -> None:
    config = write(tmp_path, more=QUEUES)
    rest = manifests("--config", config, "--without-queue-kinds")
    left_out = [each for each in manifests("--config", config) if each not in rest]
    assert left_out == kinds_of_queues()


def test_a_configuration_is_there_before_the_pods_that_follow_it(tmp_path: Path) -> None:
    kinds = [each["kind"] for each in manifests("--config", write(tmp_path))]
    assert kinds.index("Namespace") == 0
    assert max(place for place, kind in enumerate(kinds) if kind == "ConfigMap") < kinds.index("Deployment")


def test_one_kube_scheduler_serves_all_names_that_jobs_use(tmp_path: Path) -> None:
    objects = manifests("--config", write(tmp_path, "Research", "two"), "--one-scheduler")
    expected = ["hived", "hived-research", "hived-two", "hivedscheduler-ds-research", "hivedscheduler-ds-two"]
    assert scheduler_names(objects) == {f"{SCHEDULER}-config": expected}


@pytest.mark.parametrize("options", [[], ["--one-scheduler"]], ids=["per VC", "one"])
def test_jobs_that_are_submitted_find_a_kube_scheduler(options: list[str], tmp_path: Path) -> None:
    objects = manifests("--config", write(tmp_path, "ML_Ops", "Two"), *options)
    served = {name for names in scheduler_names(objects).values() for name in names}
    assert {Submission(user="").scheduler_for(vc) for vc in ("ML_Ops", "Two")} | {submission.SCHEDULER} <= served


@pytest.mark.parametrize(("names", "host"), [(("one", "default"), "default"), (("b", "a"), "b")])
def test_a_name_for_all_virtual_clusters_is_served_once(names: tuple[str, str], host: str, tmp_path: Path) -> None:
    served = scheduler_names(manifests("--config", write(tmp_path, *names)))
    assert [config for config, its_names in served.items() if "hived" in its_names] == [f"{SCHEDULER}-{host}-config"]


def test_names_of_the_users_take_the_place_of_ours(tmp_path: Path) -> None:
    names = ("--scheduler-name", "gpus", "--scheduler-name", "{vc}-gpus")
    objects = manifests("--config", write(tmp_path), "--one-scheduler", *names)
    assert scheduler_names(objects) == {f"{SCHEDULER}-config": ["gpus", "one-gpus", "two-gpus"]}


def test_names_of_the_configuration_take_the_place_of_ours(tmp_path: Path) -> None:
    config = write(tmp_path, more="schedulerNames: ['{vc}-gpus']\n")
    assert scheduler_names(manifests("--config", config)) == {
        f"{SCHEDULER}-one-config": ["one-gpus"],
        f"{SCHEDULER}-two-config": ["two-gpus"],
    }
    config = write(tmp_path, more="schedulerNames: [gpus]\n")
    assert scheduler_names(manifests("--config", config, "--one-scheduler")) == {f"{SCHEDULER}-config": ["gpus"]}
    assert "scheduler name 'gpus': one kube-scheduler per virtual cluster" in refusal(config)


def test_a_name_that_a_controller_forces_is_served_by_the_first_kube_scheduler(tmp_path: Path) -> None:
    config = write(tmp_path, more="schedulerNames: ['hived-{vc}', volcano, scheduler-plugins]\n")
    options = ("--webhook", str(CA))
    objects = manifests("--config", config, *options)
    assert scheduler_names(objects) == {
        f"{SCHEDULER}-one-config": ["hived-one", "volcano", "scheduler-plugins"],
        f"{SCHEDULER}-two-config": ["hived-two"],
    }
    _, webhook = [each for _, each in webhooks(objects)]
    assert '"volcano"' in webhook["matchConditions"][0]["expression"]


def test_a_name_whose_pods_the_configuration_does_not_know_is_warned_of(tmp_path: Path) -> None:
    config = write(tmp_path, more="schedulerNames: [gpus]\n")
    names = ("--scheduler-name", "gpus", "--scheduler-name", "{vc}-gpus")
    result = CliRunner().invoke(main, ["manifests", "--config", config, "--one-scheduler", *names])
    assert [line.split(" is not")[0] for line in result.stderr.splitlines()] == [
        "Warning: one-gpus",
        "Warning: two-gpus",
    ]


@pytest.mark.parametrize("options", [[], ["--one-scheduler"]], ids=["per VC", "one"])
def test_an_empty_name_is_refused(options: list[str], tmp_path: Path) -> None:
    assert "scheduler name '': expected" in refusal(write(tmp_path), "--scheduler-name", "", *options)


def test_a_kube_scheduler_per_vc_has_names_a_lease_and_labels_of_its_own(tmp_path: Path) -> None:
    objects = manifests("--config", write(tmp_path, "ML_Ops", "two"))
    assert scheduler_names(objects) == {
        f"{SCHEDULER}-ml-ops-config": ["hived", "hived-ml_ops", "hivedscheduler-ds-ml_ops"],
        f"{SCHEDULER}-two-config": ["hived-two", "hivedscheduler-ds-two"],
    }
    deployment = dict(of_kind(objects, "Deployment"))[f"Deployment/{SCHEDULER}-ml-ops"]
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == f"{SCHEDULER}-ml-ops"
    assert pod["spec"]["serviceAccountName"] == SCHEDULER
    assert f"--leader-elect-resource-name={SCHEDULER}-ml-ops" in pod["spec"]["containers"][0]["args"]


def chosen(selector: str, objects: list[dict[str, Any]]) -> list[str]:
    """The names of the objects that a selector of three requirements chooses, as Kubernetes reads it."""
    component, _, rest = selector.partition(",")
    key, value = component.split("=")
    vc_key, _, known = rest.partition(" notin ")
    of_component = [each["metadata"] for each in objects if each["metadata"].get("labels", {}).get(key) == value]
    vcs = [(each["name"], each["labels"].get(vc_key)) for each in of_component]
    if known:
        return [name for name, vc in vcs if vc not in known.strip("()").split(",")]
    return [name for name, vc in vcs if vc is not None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {f"{SCHEDULER}-two", f"{SCHEDULER}-two-config"}),
        (["--one-scheduler"], {f"{SCHEDULER}{vc}{kind}" for vc in ("-one", "-two") for kind in ("", "-config")}),
    ],
    ids=["per VC", "one"],
)
def test_the_output_begins_with_how_to_find_what_it_leaves_behind(
    options: list[str], expected: set[str], tmp_path: Path
) -> None:
    there = manifests("--config", write(tmp_path))
    config = write(tmp_path, second="three")
    result = CliRunner().invoke(main, ["manifests", "--config", config, "--namespace", "gpus", *options])
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("#   kubectl ")]
    command = shlex.split(line.removeprefix("#"))
    assert command[:5] == ["kubectl", "-n", "gpus", "get", "deployments,poddisruptionbudgets,configmaps"]
    kinds = ("Deployment", "PodDisruptionBudget", "ConfigMap")
    assert set(chosen(command[-1], [each for _, each in of_kind(there, *kinds)])) == expected
    own = [each for _, each in of_kind(list(yaml.load_all(result.stdout, yaml.CSafeLoader)), *kinds)]
    assert chosen(command[-1], own) == []


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        (("a-b", "a_b"), (), "'a-b' and 'a_b' would both be called hived-kube-scheduler-a-b"),
        (("研究", "two"), (), "virtual cluster '研究' has no letter"),
        (("one", "two"), ("--scheduler-name", "gpus"), "such as 'gpus-{vc}'"),
    ],
)
def test_a_kube_scheduler_per_vc_needs_names_that_differ(
    names: tuple[str, str], options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(write(tmp_path, *names), *options)
    assert manifests("--config", write(tmp_path, *names), "--one-scheduler", *options)


@pytest.mark.parametrize("who", ["service", "kube-scheduler"])
def test_kube_scheduler_proposes_every_node_whoever_preempts(who: str, tmp_path: Path) -> None:
    objects = manifests("--config", write(tmp_path, more=f"preemptionBy: {who}\n"))
    profiles = [each for _, config in scheduler_configurations(objects) for each in config["profiles"]]
    assert profiles
    for profile in profiles:
        assert profile.keys() == {"schedulerName", "pluginConfig"}
        plugins = {plugin["name"]: plugin["args"] for plugin in profile["pluginConfig"]}
        assert plugins["DefaultPreemption"] == {"minCandidateNodesPercentage": 100}


def test_the_limit_that_makes_a_pod_ours_need_not_be_offered_by_nodes(tmp_path: Path) -> None:
    for _, config in scheduler_configurations(manifests("--config", write(tmp_path))):
        assert "managedResources" not in config["extenders"][0]
        for profile in config["profiles"]:
            plugins = {plugin["name"]: plugin["args"] for plugin in profile["pluginConfig"]}
            assert plugins["NodeResourcesFit"] == {"ignoredResourceGroups": [ENABLE_LIMIT.partition("/")[0]]}


def test_a_configuration_too_large_for_a_config_map_is_refused(tmp_path: Path) -> None:
    assert "a ConfigMap holds" in refusal(write(tmp_path, more=f"# {'x' * 1_000_000}\n"))


def test_pods_of_other_schedulers_are_not_asked_about_where_the_configuration_counts_them(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(f"foreignDevices: {{nvidia.com/gpu: occupy}}\n{(SAMPLES / 'racks.yaml').read_text()}")
    ((_, isolating),) = webhooks(manifests("--config", str(config), "--webhook", str(CA)))
    assert isolating["name"].startswith("devices.")


def test_pods_of_other_schedulers_are_asked_about_where_the_configuration_refuses_them(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text((SAMPLES / "racks.yaml").read_text())
    hooks = [webhook for _, webhook in webhooks(manifests("--config", str(config), "--webhook", str(CA)))]
    refusing, isolating = hooks
    assert refusing["clientConfig"] == isolating["clientConfig"]
    assert (refusing["failurePolicy"], isolating["failurePolicy"]) == ("Ignore", "Fail")
    of_others, with_devices = (each["expression"] for each in refusing["matchConditions"])
    assert of_others == f"!({isolating['matchConditions'][0]['expression']})"
    assert with_devices.count('r in ["nvidia.com/gpu"]') == 2
    passing = {(each["key"], *each["values"]) for each in refusing["namespaceSelector"]["matchExpressions"]}
    assert passing == {("kubernetes.io/metadata.name", *SYSTEM_NAMESPACES), (EXEMPT, ALLOW)}


def test_quota_trees_are_checked_where_the_configuration_has_queues(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(f"queues: {{enabled: true}}\n{(SAMPLES / 'racks.yaml').read_text()}")
    words = ("--config", str(config), "--webhook", str(CA), "--namespace", "gpus", "--without-queue-kinds")
    objects = manifests(*words)
    hooks = {webhook["name"]: webhook for _, webhook in webhooks(objects)}
    checking, holding = (hooks[f"{each}.hivedscheduler.microsoft.com"] for each in ("quotas", "jobs"))
    assert checking["clientConfig"]["caBundle"] == holding["clientConfig"]["caBundle"]
    assert checking["clientConfig"]["service"]["namespace"] == "gpus"
    assert {rule: list(check(objects)) for rule, check in RULES.items()} == {rule: [] for rule in RULES}


def test_a_configuration_that_refuses_pods_in_vain_is_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(f"foreignDevices: {{nvidia.com/gpu: refuse}}\n{(SAMPLES / 'racks.yaml').read_text()}")
    words = ["manifests", "--config", str(config)]
    warned = CliRunner().invoke(main, words)
    assert warned.exit_code == 0
    assert "the admission webhook refuses pods that ask for nvidia.com/gpu, and there is none" in warned.stderr
    assert CliRunner().invoke(main, [*words, "--webhook", str(CA)]).stderr == ""


def test_the_webhook_trusts_the_ca_and_sees_pods_of_the_names_that_are_served(tmp_path: Path) -> None:
    config = write(tmp_path, "ML_Ops", "two")
    options = ("--webhook", str(CA), "--webhook-failure-policy", "Ignore", "--namespace", "gpus")
    _, webhook = [each for _, each in webhooks(manifests("--config", config, *options))]
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == CA.read_bytes()
    assert webhook["clientConfig"]["service"]["namespace"] == "gpus"
    assert webhook["failurePolicy"] == "Ignore"
    (condition,) = webhook["matchConditions"]
    names = json.loads(condition["expression"].removeprefix("object.spec.schedulerName in "))
    assert names == ["hived", "hived-ml_ops", "hived-two", "hivedscheduler-ds-ml_ops", "hivedscheduler-ds-two"]


def test_a_missing_configuration_is_asked_for_though_its_map_is_left_out(tmp_path: Path) -> None:
    message = refusal(str(tmp_path / "none.yaml"), "--without-config")
    assert "none.yaml: found no file; --without-config leaves only the ConfigMap out" in message


def test_a_ca_that_is_none_is_refused(tmp_path: Path) -> None:
    config = write(tmp_path)
    (tmp_path / "empty.crt").touch()
    for file in (config, str(tmp_path / "nothing"), str(tmp_path), str(tmp_path / "empty.crt")):
        assert f"--webhook {file}: expected the PEM certificate" in refusal(config, "--webhook", file)


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ((), {"hived", "hived-tenants"}),
        (("--kueue",), {"hived", "hived-tenants", "hived-kueue", "hived-tenants-kueue"}),
    ],
)
def test_features_that_are_off_bring_no_rights(options: tuple[str, ...], roles: set[str]) -> None:
    objects = manifests(*options)
    bound = {
        each["roleRef"]["name"]
        for each in objects
        if each["kind"] == "ClusterRoleBinding" and each["subjects"][0]["name"] == "hived"
    }
    assert bound - {"hived-token-checks"} == roles
    patched = {
        resource
        for each in objects
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] in roles
        for rule in each["rules"]
        if "patch" in rule["verbs"]
        for resource in rule["resources"]
    }
    assert not patched & {"deployments", "jobs", "jobsets", "rayjobs", "queues"}


LISTS = "access: namespaces\nrights: namespaces\n" + QUEUES + TWO_VCS.replace("}]}", "}], namespaces: [%s]}")


def test_rights_on_tenants_objects_hold_where_virtual_clusters_list_namespaces(tmp_path: Path) -> None:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(LISTS % ("one", "vision", "two", "{name: ci, maxPriority: oppo}"))
    objects = manifests("--config", str(path), "--kueue", "--without-queue-kinds")
    accounts = {"kind": "ServiceAccount", "name": "hived", "namespace": "hived-system"}
    everywhere = [each for each in objects if each["kind"] == "ClusterRoleBinding" and accounts in each["subjects"]]
    roles = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "ClusterRole"}
    changed = [
        (verb, resource)
        for each in everywhere
        for rule in roles[each["roleRef"]["name"]]
        for verb in set(rule["verbs"]) - {"get", "list", "watch"}
        for resource in rule.get("resources", ())
    ]
    assert {resource for _, resource in changed} == {
        "events", "pods", "queues", "queueunits", "queues/status", "queueunits/status", "admissionchecks/status",
    }  # fmt: skip
    assert [verb for verb, resource in changed if resource == "pods"] == ["bind"]  # of hived's own, which nobody serves
    bound = {
        (each["metadata"]["namespace"], each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in objects
        if each["kind"] == "RoleBinding" and each["metadata"]["name"].startswith("hived-tenants")
    }
    names = ("hived-tenants", "hived-tenants-queues", "hived-tenants-kueue")
    assert bound == {(namespace, "ClusterRole", name) for namespace in ("ci", "vision") for name in names}
    assert [finding for check in RULES.values() for finding in check(objects)] == []
