"""The chart with Helm itself: each set of values gives the objects that `hived manifests` or config/deploy gives."""

import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from delivery.chart import CHART, MANIFEST_TYPE, write_package
from delivery.project import read_version
from hived_cli import main
from hived_deploy import kustomize
from hived_deploy.certificates import Authority
from hived_deploy.installation import DIGEST_ANNOTATION, NAMESPACE, Installation
from hived_deploy.kustomize import Document, build
from tests.deploy.installations import DEPLOY
from tests.deploy.rules import RULES
from tests.e2e import tools
from tests.e2e.tools import ToolsMissing

LEFT_OUT = {"helm.sh/resource-policy", "hived/chart-configuration", DIGEST_ANNOTATION}
"""Annotations that are not compared: two that only objects of the chart have, and digests."""

HOOK = "helm.sh/hook"

CONFIGURATION = (DEPLOY / "base" / "hivedscheduler.yaml").read_text()
VIRTUAL_CLUSTERS = ("default", "research")
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program."""
    if "HIVED_CHART" not in os.environ:
        pytest.skip("Helm renders the chart some fifty times, which takes half a minute: make test-chart")
    try:
        return tools.find_helm()
    except ToolsMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Variables under which Helm keeps everything in a folder of the test."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def template(helm: Path, values: dict[str, Any], *options: str, namespace: str = NAMESPACE) -> list[Document]:
    """The objects of a release with these values, and with the configuration of config/deploy unless they have one.

    The cluster has the version of config/deploy's kube-scheduler.
    """
    values = {"configuration": CONFIGURATION} | values
    (image,) = [
        each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in build(DEPLOY)
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "hived-kube-scheduler")
    ]
    command = [str(helm), "template", "hived", str(CHART), "--namespace", namespace, "--values", "-",
               "--kube-version", image.rpartition(":")[2], *options]  # fmt: skip
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each is not None]


def is_hook(each: Document) -> bool:
    """Is it an object that Helm makes before the others, and takes away?"""
    return HOOK in each["metadata"].get("annotations", {})


def by_name(objects: list[Document]) -> dict[str, Document]:
    """Objects by kind and name, their texts of YAML as objects.

    Left out are the digests of these texts, which differ with their spelling, annotations that only the chart has, and
    its hooks.
    """
    found = {}
    for each in json.loads(json.dumps([each for each in objects if not is_hook(each)])):
        for holder in (each["metadata"], each.get("spec", {}).get("template", {}).get("metadata", {})):
            annotations = holder.pop("annotations", {})
            if kept := {key: annotations[key] for key in annotations if key not in LEFT_OUT}:
                holder["annotations"] = kept
        if each["kind"] == "ConfigMap":
            each["data"] = {key: yaml.safe_load(text) for key, text in each["data"].items()}
        found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "single": ({"replicas": 1}, {"replicas": 1}),
    "images": (
        {"image": {"repository": "registry.example/hived", "tag": "1.2"},
         "kubeScheduler": {"image": {"repository": "r.example/ks", "digest": "sha256:" + "0a" * 32}}},
        {"image": "registry.example/hived:1.2", "scheduler_image": "r.example/ks@sha256:" + "0a" * 32},
    ),
    "tls": ({"tls": {"enabled": True}}, {"overlay": "tls"}),
    "service monitor": ({"serviceMonitor": {"enabled": True}}, {"has_service_monitor": True}),
    "tls and service monitor": (
        {"tls": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        {"overlay": "tls", "has_service_monitor": True},
    ),
    "webhook": (
        {"webhook": {"enabled": True, "caBundle": CA, "failurePolicy": "Ignore"}},
        {"webhook_ca": CA, "webhook_failure_policy": "Ignore"},
    ),
    "a webhook that holds jobs": (
        {"webhook": {"enabled": True, "caBundle": CA, "holdsJobs": True}},
        {"webhook_ca": CA, "holds_jobs": True},
    ),
    "tls and a webhook that refuses": (
        {"tls": {"enabled": True}, "webhook": {"enabled": True, "caBundle": CA, "refusedResources": ["a/x", "a/y"]}},
        {"overlay": "tls", "webhook_ca": CA, "refused_resources": ("a/x", "a/y")},
    ),
    "names": (
        {"kubeScheduler": {"names": ["gpus", "gpus-{vc}"]}},
        {"scheduler_names": ("gpus", "gpus-{vc}")},
    ),
    "a kube-scheduler for each virtual cluster": (
        {"kubeScheduler": {"names": ["hived", "hived-{vc}"], "perVirtualCluster": True}, "tls": {"enabled": True}},
        {"scheduler_names": ("hived", "hived-{vc}"), "is_scheduler_per_vc": True, "overlay": "tls"},
    ),
}  # fmt: skip
"""Values of the chart, and the choices of `hived manifests` that mean the same."""


def installed(**choices: Any) -> list[Document]:
    """The objects of `hived manifests` with these choices; the defaults are those of config/deploy."""
    choices = {"scheduler_names": ("hived",), "is_scheduler_per_vc": False} | choices
    return Installation(configuration=CONFIGURATION, virtual_clusters=VIRTUAL_CLUSTERS, **choices).objects()


FLAGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tls": ({"tls": {"enabled": True}}, {"overlay": "tls"}),
    "monitor": ({"serviceMonitor": {"enabled": True}}, {"has_service_monitor": True}),
    "webhook": (
        {"webhook": {"enabled": True, "caBundle": CA}},
        {"webhook_ca": CA},
    ),
    "refused": ({"webhook": {"refusedResources": ["a/x"]}}, {"refused_resources": ("a/x",)}),
    "jobs": ({"webhook": {"holdsJobs": True}}, {"holds_jobs": True}),
    "queues": ({"queues": {"enabled": True}}, {"has_queues": True}),
    "kueue": ({"kueue": {"enabled": True}}, {"has_kueue": True}),
    "tenants": ({"rbac": {"namespaces": ["a", "b"]}}, {"tenant_namespaces": ("a", "b")}),
}
"""What adds or changes objects, alone."""


@pytest.mark.parametrize("flags", [each for count in range(9) for each in combinations(FLAGS, count)], ids="+".join)
def test_any_choices_together_give_the_objects_of_the_manifests_command(flags: tuple[str, ...], helm: Path) -> None:
    values: dict[str, Any] = {"createNamespace": True}
    choices: dict[str, Any] = {}
    for flag in flags:
        values, choices = kustomize.merge(values, FLAGS[flag][0]), choices | FLAGS[flag][1]
    assert by_name(template(helm, values)) == by_name(installed(**choices))


ASKED = {
    "queues": "queues: {enabled: true}\n",
    "names": "schedulerNames: [gpus, 'gpus-{vc}']\n",
    "nothing refused": "foreignDevices: {nvidia.com/gpu: ignore}\n",
    "a resource of its own": CONFIGURATION.replace("{gpu: 1,", "{resource: amd.com/gpu,"),
    "cells without devices": CONFIGURATION.replace("{gpu: 1,", "{"),
    "rights": "rights: namespaces\nopportunistic: {namespaces: [{name: later}, research]}\n",
    "all": "queues: {enabled: yes}\nrights: namespaces\nschedulerNames: [gpus]\n"
           "foreignDevices: {nvidia.com/gpu: occupy}\n",
}  # fmt: skip
"""What a configuration asks for: lines that are added to that of config/deploy, or a whole one."""


@pytest.mark.parametrize("name", ASKED)
def test_the_chart_derives_from_a_configuration_what_the_manifests_command_does(
    name: str, helm: Path, tmp_path: Path
) -> None:
    file = tmp_path / "hivedscheduler.yaml"
    file.write_text(ASKED[name] if "physicalCluster" in ASKED[name] else CONFIGURATION + ASKED[name])
    ca = Authority.create().pair.certificate.decode()
    (tmp_path / "ca.crt").write_text(ca)
    is_per_vc = "{vc}" in ASKED[name]
    values = {
        "configuration": file.read_text(),
        "createNamespace": True,
        "webhook": {"enabled": True, "caBundle": ca},
        "kubeScheduler": {"perVirtualCluster": is_per_vc},
    }
    options = [] if "schedulerNames" in ASKED[name] else ["--scheduler-name=hived"]
    options += ["--scheduler-per-vc" if is_per_vc else "--one-scheduler", "--without-queue-kinds"]
    command = ["manifests", f"--config={file}", f"--webhook={tmp_path / 'ca.crt'}", *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert by_name(template(helm, values)) == by_name([*yaml.load_all(done.stdout, yaml.CSafeLoader)])


def test_the_defaults_are_the_objects_of_config_deploy(helm: Path) -> None:
    assert by_name(template(helm, {"createNamespace": True})) == by_name(build(DEPLOY))


@pytest.mark.parametrize("name", CASES)
def test_values_give_the_objects_of_the_manifests_command(name: str, helm: Path) -> None:
    values, choices = CASES[name]
    assert by_name(template(helm, values | {"createNamespace": True})) == by_name(installed(**choices))


OF_SERVICES = {"is_probed_at_a_port_it_has", "holds_a_lease_it_may_hold", "has_an_account_of_its_own"}
"""Rules for programs that keep running; the Job of the hook ends, and has no rights."""


@pytest.mark.parametrize("name", [each for each in CASES if "refuses" not in each])
def test_no_object_breaks_a_rule(name: str, helm: Path) -> None:
    objects = template(helm, CASES[name][0] | {"createNamespace": True})
    lasting = [each for each in objects if not is_hook(each)]
    assert {rule: list(check(lasting)) for rule, check in RULES.items()} == {rule: [] for rule in RULES}
    of_hooks = {rule: check for rule, check in RULES.items() if rule not in OF_SERVICES}
    assert {rule: list(check(objects)) for rule, check in of_hooks.items()} == {rule: [] for rule in of_hooks}


def test_without_the_value_the_namespace_is_helms_to_make(helm: Path) -> None:
    assert by_name(build(DEPLOY)).keys() - by_name(template(helm, {})).keys() == {f"Namespace/{NAMESPACE}"}


def test_the_namespace_of_the_release_is_that_of_all_objects(helm: Path) -> None:
    objects = template(helm, {"createNamespace": True}, namespace="gpu-scheduling")
    assert by_name(objects) == by_name(installed(namespace="gpu-scheduling"))


def test_a_config_map_of_the_users_takes_the_place_of_the_charts(helm: Path) -> None:
    objects = template(helm, {"existingConfigMap": "ours", "createNamespace": True})
    wanted = [each for each in installed() if (each["kind"], each["metadata"]["name"]) != ("ConfigMap", "hived-config")]
    wanted = json.loads(json.dumps(wanted).replace("$(POD_NAMESPACE)/hived-config", "$(POD_NAMESPACE)/ours")
                        .replace('"resourceNames": ["hived-config"]', '"resourceNames": ["ours"]'))  # fmt: skip
    assert by_name(objects) == by_name(wanted)


POD_VALUES: dict[str, Any] = {
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {"x": 1}},
    "priorityClassName": "ours",
    "resources": {"limits": {"cpu": "77"}},
    "podSecurityContext": {"runAsUser": 77},
    "securityContext": {"runAsUser": 77},
}
PODS = {"hived": "", "hived-kube-scheduler": "kubeScheduler"}


@pytest.mark.parametrize("key", POD_VALUES)
@pytest.mark.parametrize("deployment", PODS)
def test_a_value_of_pods_arrives_at_the_pods_that_it_is_for(deployment: str, key: str, helm: Path) -> None:
    values = {key: POD_VALUES[key]}
    objects = by_name(template(helm, {PODS[deployment]: values} if PODS[deployment] else values))
    reached = []
    for name in PODS:
        pod = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]
        place = pod["containers"][0] if key in {"resources", "securityContext"} else pod
        found = place.get("securityContext" if key == "podSecurityContext" else key)
        reached += [name] * (kustomize.merge(found, POD_VALUES[key]) == found)
    assert reached == [deployment]


def test_common_labels_are_those_of_every_object_and_pod(helm: Path) -> None:
    objects = template(helm, {"commonLabels": {"team": "gpu"}, "serviceMonitor": {"enabled": True}})
    holders = [each["metadata"] for each in objects]
    holders += [each["spec"]["template"]["metadata"] for each in objects if each["kind"] == "Deployment"]
    assert all(each["labels"]["team"] == "gpu" for each in holders)


def test_options_and_variables_are_added_to_hiveds_own(helm: Path) -> None:
    variable = {"name": "X", "value": "1"}
    objects = by_name(template(helm, {"extraArgs": ["--sync-nodes=60"], "extraEnv": [variable]}))
    (container,) = objects["Deployment/hived"]["spec"]["template"]["spec"]["containers"]
    assert (container["args"][0], container["args"][-1], container["env"][-1]) == ("serve", "--sync-nodes=60", variable)


def test_kube_scheduler_is_not_newer_than_the_cluster(helm: Path) -> None:
    objects = by_name(template(helm, {}, "--kube-version", "v1.33.5-vendor.7"))
    (container,) = objects["Deployment/hived-kube-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.k8s.io/kube-scheduler:v1.33.5"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"kubeScheduler": {"perVirtualCluster": True}}, "needs a name with {vc}"),
        ({"existingConfigMap": "x", "kubeScheduler": {"perVirtualCluster": True}}, "name them in virtualClusters"),
        ({"configuration": ""}, "it is empty; give your cluster's with --set-file configuration=hivedscheduler.yaml"),
        ({"configuration": "a: ["}, "configuration:"),
        ({"configuration": "physicalCluster: {}"}, "no virtualClusters in it"),
        ({"configuration": "- a"}, "configuration:"),
        ({"image": {"digest": "latest"}}, "image"),
        ({"replica": 3}, "replica"),
        ({"virtualClusters": ["A b", "a-b"], "kubeScheduler": {"names": ["{vc}"], "perVirtualCluster": True}}, "a-b"),
        ({"webhook": {"enabled": True}}, "webhook.caBundle"),
    ],
    ids=str,
)
def test_values_that_cannot_be_used_are_refused(values: dict[str, Any], word: str, helm: Path) -> None:
    values = {"configuration": CONFIGURATION} | values
    command = [str(helm), "template", "hived", str(CHART), "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    assert done.returncode
    assert word in done.stderr


def test_helm_finds_no_fault(helm: Path) -> None:
    file = DEPLOY / "base" / "hivedscheduler.yaml"
    command = [helm, "lint", "--strict", CHART, f"--set-file=configuration={file}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


HOOK_OBJECTS = {"ConfigMap/hived-validation", "Job/hived-validation"}


def hooks(helm: Path, **values: Any) -> dict[str, Document]:
    """The objects that Helm makes before the others, by kind and name."""
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in template(helm, values) if is_hook(each)}


def test_a_job_checks_the_configuration_before_everything_else(helm: Path) -> None:
    found = hooks(helm)
    annotations = [each["metadata"]["annotations"] for each in found.values()]
    assert found.keys() == HOOK_OBJECTS
    assert {each[HOOK] for each in annotations} == {"pre-install,pre-upgrade"}
    weights = {name: int(each["metadata"]["annotations"].get(f"{HOOK}-weight", 0)) for name, each in found.items()}
    assert weights["ConfigMap/hived-validation"] < weights["Job/hived-validation"]


def test_the_job_runs_as_hived_does_without_rights(helm: Path) -> None:
    pod = hooks(helm)["Job/hived-validation"]["spec"]["template"]["spec"]
    hived = by_name(template(helm, {}))["Deployment/hived"]["spec"]["template"]["spec"]
    same = ("image", "securityContext", "resources")
    (container,), (own,) = pod["containers"], hived["containers"]
    assert [container[key] for key in same] == [own[key] for key in same]
    assert pod["securityContext"] == hived["securityContext"]
    assert (pod["automountServiceAccountToken"], "serviceAccountName" in pod) == (False, False)


@pytest.mark.parametrize(
    ("change", "code"), [("", 0), ("  more: {virtualCells: [{cellType: NONE, cellNumber: 1}]}\n", 1)]
)
def test_the_jobs_command_fails_with_each_mistake_of_its_file(
    change: str, code: int, helm: Path, tmp_path: Path
) -> None:
    found = hooks(helm, configuration=CONFIGURATION + change)
    spec = found["Job/hived-validation"]["spec"]["template"]["spec"]
    mount = spec["containers"][0]["volumeMounts"][0]["mountPath"]
    for name, text in found["ConfigMap/hived-validation"]["data"].items():
        (tmp_path / name).write_text(text)
    words = [word.replace(mount, str(tmp_path)) for word in spec["containers"][0]["args"]]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "unknown chain 'NONE'" in done.output) == (code, bool(code))
    assert found["Job/hived-validation"]["spec"]["backoffLimit"] == 0


def test_the_job_checks_a_config_map_of_the_users(helm: Path) -> None:
    found = hooks(helm, existingConfigMap="ours", configuration="")
    (volume, _) = found["Job/hived-validation"]["spec"]["template"]["spec"]["volumes"]
    assert (found.keys(), volume["configMap"]["name"]) == ({"Job/hived-validation"}, "ours")


def test_the_job_can_be_left_out(helm: Path) -> None:
    assert not hooks(helm, validation={"enabled": False})


def test_helm_reads_the_package(helm: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    packed = write_package(tmp_path, 1_700_000_000)
    shown = subprocess.run([helm, "show", "chart", packed], env=environ, capture_output=True, text=True, check=True)
    assert yaml.safe_load(shown.stdout) == yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_helm_pulls_the_chart_from_a_registry_that_serves_the_layout(
    helm: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    version = read_version()
    packed = write_package(tmp_path, 1_700_000_000)
    layout = tmp_path / f"hived-{version}.oci"
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]

    class Registry(BaseHTTPRequestHandler):
        """What a registry answers to somebody who pulls."""

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            digest = entry["digest"] if name == version else name
            blob = layout / "blobs" / digest.replace(":", "/")
            content = blob.read_bytes() if blob.is_file() else b""
            self.send_response(200 if content else 404)
            is_manifest = "/manifests/" in self.path
            self.send_header("Content-Type", MANIFEST_TYPE if is_manifest else "application/octet-stream")
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    target = tmp_path / "pulled"
    target.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as registry:
        Thread(target=registry.serve_forever, daemon=True).start()
        source = f"oci://127.0.0.1:{registry.server_port}/charts/hived"
        pull = [helm, "pull", source, "--version", version, "--plain-http", "--destination", target]
        subprocess.run(pull, env=environ, check=True, timeout=60)
        registry.shutdown()
    assert (target / packed.name).read_bytes() == packed.read_bytes()


def test_kinds_of_queues_come_with_the_chart_and_their_namespace_if_asked_for(helm: Path) -> None:
    wanted = {(each["kind"], each["metadata"]["name"]): each for each in build(DEPLOY / "queues")}
    values = {"queues": {"createNamespace": True}}
    there = {(each["kind"], each["metadata"]["name"]): each for each in template(helm, values, "--include-crds")}
    assert {key: there.get(key) for key in wanted} == wanted
    assert not wanted.keys() & {(each["kind"], each["metadata"]["name"]) for each in template(helm, {})}
