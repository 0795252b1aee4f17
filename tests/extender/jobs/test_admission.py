"""The patch of the admission webhook for a pod (rules 22.1 to 22.4): cases in, JSON Patch out."""

import base64
import copy
import json
from typing import Any

import pytest
from msgspec import convert

from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_config.rules import Foreign, PodRules
from hived_extender.jobs.access import ALLOW, EXEMPT
from hived_extender.jobs.admission import Admission, review
from hived_extender.jobs.amounts import DEVICE_REQUESTS, requested
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.device_words import VARIABLES
from hived_extender.jobs.kinds.marks import USER
from hived_extender.jobs.wire import ENABLE_LIMIT, Pod
from hived_lab.embedded.apiserver.patches import json_patch

CONFIGURATION = """\
physicalCluster:
  skuTypes:
    V100: {gpu: 1, cpu: 4, memory: 8Gi}
    MI300: {gpu: 1, cpu: 4, memory: 8Gi}
  cellTypes:
    V100-NODE: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}
    MI300-NODE: {childCellType: MI300, childCellNumber: 8, isNodeLevel: true}
  physicalCells: [{cellType: V100-NODE, cellAddress: a}, {cellType: MI300-NODE, cellAddress: b}]
virtualClusters:
  research: {virtualCells: [{cellType: V100-NODE, cellNumber: 1}]}
"""
NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
GANG = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
SOURCE = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{LEAF_CELL_ISOLATION}']"}}
OURS = [{"name": name, "valueFrom": SOURCE} for name in VARIABLES]
AMD_WORD = "AMD_VISIBLE_DEVICES"
NONE = [{"name": name, "value": "void"} for name in (*VARIABLES, AMD_WORD)]


@pytest.fixture(scope="module")
def admission() -> Admission:
    cluster = load_text(CONFIGURATION, "hivedscheduler.yaml").cluster
    counted = {NVIDIA: Foreign.OCCUPY, AMD: Foreign.OCCUPY}
    return Admission(cluster, PodRules(resources={"MI300": AMD}, foreign_devices=counted))


def container(name: str = "main", count: int | str | None = None, resource: str = NVIDIA, **more: Any) -> Any:
    """A container as an API server sends it: requests are as limits where they were left out."""
    resources = {} if count is None else {key: {resource: str(count), "cpu": "1"} for key in ("limits", "requests")}
    return {"name": name, "image": "i", "resources": resources, **more}


def pod(*containers: Any, scheduler: str = "hived-research", init: list[Any] | None = None, **metadata: Any) -> Any:
    spec = {"schedulerName": scheduler, "containers": list(containers)}
    return {"metadata": {"name": "p", **metadata}, "spec": spec | ({"initContainers": init} if init else {})}


def changed(admission: Admission, given: Any) -> tuple[Any, list[str]]:
    """(the pod after the patch, the warnings) of a review over JSON; a second review has nothing left to change."""
    before = copy.deepcopy(given)
    answer = asked(admission, given)
    assert given == before
    after = json_patch(given, json.loads(base64.b64decode(answer["patch"]))) if "patch" in answer else given
    assert "patch" not in asked(admission, after)
    return after, answer.get("warnings", [])


def asked(admission: Admission, given: Any, *, is_allowed: bool = True, **more: Any) -> Any:
    request = {"uid": "u", "operation": "CREATE", "namespace": "ns", "object": given, **more}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = json.loads(review(admission, json.dumps(body).encode()))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "u"
    assert answer["response"]["allowed"] is is_allowed
    assert ("patch" in answer["response"]) == (answer["response"].get("patchType") == "JSONPatch")
    return answer["response"]


def saved(after: Any) -> Any:
    return json.loads(after["metadata"]["annotations"][DEVICE_REQUESTS])


def enabled(after: Any) -> list[str]:
    """The containers with the limit that makes a pod ours."""
    return [each["name"] for each in after["spec"]["containers"] if ENABLE_LIMIT in each["resources"].get("limits", {})]


def test_a_pod_with_devices_gets_the_limit_and_the_variables_and_loses_the_resource(admission: Admission) -> None:
    after, warnings = changed(admission, pod(container(count=2, env=[{"name": "A", "value": "1"}])))
    (main,) = after["spec"]["containers"]
    assert main["resources"] == {"limits": {"cpu": "1", ENABLE_LIMIT: 1}, "requests": {"cpu": "1"}}
    assert main["env"] == [*OURS, {"name": "A", "value": "1"}]
    assert saved(after) == {"resource": NVIDIA, "total": 2, "containers": {"main": 2}}
    assert warnings == []


def test_the_resource_is_the_one_of_a_sku_type(admission: Admission) -> None:
    after, _ = changed(admission, pod(container(count=4, resource=AMD)))
    assert saved(after) == {"resource": AMD, "total": 4, "containers": {"main": 4}}
    other = pod(container(count=4, resource="example.com/fpga"))
    assert DEVICE_REQUESTS not in changed(admission, other)[0]["metadata"].get("annotations", {})


def by(username: str) -> dict[str, Any]:
    return {"userInfo": {"username": username, "groups": []}}


def named(admission: Admission, given: Any, username: str) -> dict[str, str]:
    """The annotations of a pod that this user creates; a second review changes nothing."""
    answer = asked(admission, given, **by(username))
    after = json_patch(given, json.loads(base64.b64decode(answer["patch"]))) if "patch" in answer else given
    assert "patch" not in asked(admission, after, **by(username))
    found: dict[str, str] = after["metadata"].get("annotations", {})
    return found


def test_a_pod_that_names_no_user_has_the_name_of_its_creator(admission: Admission) -> None:
    """Rule 24.20."""
    assert named(admission, pod(container()), "ann@example.com") == {USER: "ann@example.com"}
    kept = named(admission, pod(container(count=1), annotations={"a/b": "c"}), "ann")
    assert (kept["a/b"], kept[USER], DEVICE_REQUESTS in kept) == ("c", "ann", True)


@pytest.mark.parametrize(
    ("given", "username"),
    [
        (pod(container(), annotations={USER: "bob"}), "ann"),
        (pod(container(), labels={"userName": "bob"}), "ann"),
        (pod(container(), annotations={"kubeflow.org/user": "bob"}), "ann"),
        (pod(container(), ownerReferences=[{"kind": "ReplicaSet", "name": "r", "controller": True}]), "ann"),
        (pod(container(), scheduler="default-scheduler"), "ann"),
        (pod(container()), "system:serviceaccount:kube-system:job-controller"),
        (pod(container()), ""),
    ],
)
def test_what_names_a_user_or_was_made_by_no_person_keeps_its_words(
    admission: Admission, given: Any, username: str
) -> None:
    assert named(admission, given, username) == given["metadata"].get("annotations", {})


def test_annotations_and_fields_of_others_stay(admission: Admission) -> None:
    given = pod(container(count=1), annotations={"a/b": "c"}, labels={"d": "e"})
    given["spec"]["containers"][0]["resources"]["claims"] = [{"name": "x"}]
    after, _ = changed(admission, given)
    assert after["metadata"]["annotations"]["a/b"] == "c"
    assert after["metadata"]["labels"] == {"d": "e"}
    assert after["spec"]["containers"][0]["resources"]["claims"] == [{"name": "x"}]


def test_only_containers_with_devices_see_any(admission: Admission) -> None:
    after, _ = changed(admission, pod(container("log"), container("zero", 0), container("a", 1), container("b", 2)))
    log, zero, first, second = after["spec"]["containers"]
    assert log["env"] == zero["env"] == NONE
    assert first["env"] == second["env"] == OURS
    assert saved(after)["containers"] == {"a": 1, "b": 2}
    assert enabled(after) == ["log"]


@pytest.mark.parametrize(
    "init",
    [
        [],
        [container("prepare", 4)],
        [container("prepare", 1)],
        [container("beside", 1, restartPolicy="Always"), container("prepare", 4)],
        [container("prepare", 4), container("beside", 2, restartPolicy="Always")],
    ],
    ids=lambda init: "+".join(each["name"] for each in init) or "none",
)
def test_the_total_is_what_the_scheduler_would_have_counted(admission: Admission, init: list[Any]) -> None:
    given = pod(container("a", 1), container("b", 2), init=init)
    after, _ = changed(admission, given)
    assert saved(after)["total"] == requested(convert(given, Pod), NVIDIA)
    assert all(each["env"] == OURS for each in after["spec"].get("initContainers", ()))


WORDS = ("NVIDIA_VISIBLE_DEVICES", "HIVED_VISIBLE_DEVICES", AMD_WORD)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("value", [{"value": "all"}, {"value": "0"}, {"valueFrom": SOURCE},
                                   {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "all"}}}])  # fmt: skip
@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize("labels", [{}, GANG])
def test_a_container_of_a_pod_without_devices_sees_none_whatever_it_says(
    admission: Admission, word: str, value: Any, place: str, labels: Any
) -> None:
    given = pod(container(), init=[container("first")], labels=labels)
    given["spec"][place][0]["env"] = [{"name": word, **value}, {"name": "A", "value": "b"}]
    after, warnings = changed(admission, given)
    assert after["spec"][place][0]["env"] == [*NONE, {"name": "A", "value": "b"}]
    assert warnings == [f"hived: container {given['spec'][place][0]['name']}: {word} now is void: it gets no device"]


def test_a_container_without_devices_sees_none_by_its_image_or_by_a_config_map(admission: Admission) -> None:
    """A variable of `env` goes before those of `envFrom` and of the image."""
    beside = container("side", envFrom=[{"configMapRef": {"name": "c"}}])
    after, warnings = changed(admission, pod(container(count=1), beside))
    assert after["spec"]["containers"][1]["env"] == NONE
    assert warnings == []


def test_the_word_of_another_maker_gives_no_devices(admission: Admission) -> None:
    main = container(count=1, env=[{"name": AMD_WORD, "value": "all"}])
    after, _ = changed(admission, pod(main))
    assert after["spec"]["containers"][0]["env"] == [*OURS, {"name": AMD_WORD, "value": "void"}]


@pytest.mark.parametrize("count", [None, 1])
def test_nor_does_that_of_a_maker_whose_devices_the_configuration_does_not_name(
    admission: Admission, count: int | None
) -> None:
    sidecar = container("sidecar", count, env=[{"name": "HABANA_VISIBLE_DEVICES", "value": "all"}])
    after, _ = changed(admission, pod(container(count=1), sidecar))
    assert {"name": "HABANA_VISIBLE_DEVICES", "value": "void"} in after["spec"]["containers"][1]["env"]


def test_devices_of_another_maker_are_named_by_its_word(admission: Admission) -> None:
    after, _ = changed(admission, pod(container(count=1, resource=AMD)))
    words = [{"name": name, "valueFrom": SOURCE} for name in (AMD_WORD, "HIVED_VISIBLE_DEVICES")]
    assert after["spec"]["containers"][0]["env"] == words


def test_a_container_that_reads_the_devices_of_its_cells_keeps_them_and_others_see_none(admission: Admission) -> None:
    reader = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": SOURCE}])
    given = pod(reader, container("side"), annotations={SCHEDULING_SPEC: "leafCellNumber: 2"})
    main, side = changed(admission, given)[0]["spec"]["containers"]
    assert main["env"] == [OURS[0], *NONE[1:]]
    assert side["env"] == NONE


def test_a_device_plugin_goes_before_the_words_of_a_container_that_asks_it(admission: Admission) -> None:
    """Devices that no leaf cell stands for, such as parts of a GPU. A kubelet puts the plugin's variables first."""
    part = container(count=1, resource="nvidia.com/mig-1g.5gb", env=[{"name": VARIABLES[0], "value": "all"}])
    after, warnings = changed(admission, pod(part))
    assert after["spec"]["containers"][0]["env"] == []
    assert warnings == [f"hived: container main: {VARIABLES[0]} is left to its device plugin"]


def test_counts_that_somebody_else_wrote_give_the_devices_of_cells_only(admission: Admission) -> None:
    text = json.dumps({"resource": NVIDIA, "total": 1, "containers": {"main": 1}})
    main = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    after, _ = changed(admission, pod(main, container("side"), annotations={DEVICE_REQUESTS: text}))
    assert [each["env"] for each in after["spec"]["containers"]] == [OURS, NONE]


def test_on_a_node_of_its_own_choice_a_container_without_devices_sees_none(admission: Admission) -> None:
    reader = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": SOURCE}])
    given = pod(reader, annotations={SCHEDULING_SPEC: "leafCellNumber: 2", LEAF_CELL_ISOLATION: "0,1,2,3"})
    given["spec"]["nodeName"] = "a"
    assert changed(admission, given)[0]["spec"]["containers"][0]["env"] == NONE


def debugged(admission: Admission, given: Any, *added: Any) -> Any:
    """The ephemeral containers of a pod of which some are added, after the webhook."""
    spec = given["spec"]
    new = {**given, "spec": {**spec, "ephemeralContainers": [*spec.get("ephemeralContainers", ()), *added]}}
    more = {"operation": "UPDATE", "subResource": "ephemeralcontainers", "kind": {"kind": "Pod"}, "oldObject": given}
    answer = asked(admission, new, **more)
    patched = json_patch(new, json.loads(base64.b64decode(answer["patch"]))) if "patch" in answer else new
    return patched["spec"]["ephemeralContainers"]


def test_an_ephemeral_container_sees_no_device(admission: Admission) -> None:
    running, _ = changed(admission, pod(container(count=2)))
    (first,) = debugged(admission, running, {"name": "debug", "env": [{"name": VARIABLES[0], "value": "all"}]})
    assert first["env"] == NONE


def test_an_ephemeral_container_may_read_the_devices_of_its_pods_cells(admission: Admission) -> None:
    running, _ = changed(admission, pod(container(count=2)))
    assert debugged(admission, running, {"name": "debug", "env": OURS[:1]})[0]["env"] == [OURS[0], *NONE[1:]]
    without, _ = changed(admission, pod(container()))
    assert debugged(admission, without, {"name": "debug", "env": OURS[:1]})[0]["env"] == NONE


def test_ephemeral_containers_that_are_there_stay_as_they_are(admission: Admission) -> None:
    running = pod(container(), scheduler="hived")
    running["spec"]["ephemeralContainers"] = [{"name": "old"}]
    assert debugged(admission, running, {"name": "new"}) == [{"name": "old"}, {"name": "new", "env": NONE}]
    other = pod(container(), scheduler="default-scheduler")
    assert debugged(admission, other, {"name": "new"}) == [{"name": "new"}]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "hived-other", ""])
def test_a_pod_of_another_scheduler_stays_as_it_is(admission: Admission, scheduler: str) -> None:
    given = pod(container(count=2), scheduler=scheduler, labels=GANG)
    assert changed(admission, given) == (given, [])


def test_a_pod_that_has_a_node_stays_as_it_is(admission: Admission) -> None:
    given = pod(container(count=2))
    given["spec"]["nodeName"] = "a"
    assert changed(admission, given) == (given, [])


def test_a_member_of_a_gang_without_devices_gets_the_limit_only(admission: Admission) -> None:
    after, warnings = changed(admission, pod(container(), labels=GANG))
    assert enabled(after) == ["main"]
    assert after["spec"]["containers"][0]["env"] == NONE
    assert "annotations" not in after["metadata"]
    assert warnings == []


def test_a_pod_of_no_gang_without_devices_is_not_ours_to_place(admission: Admission) -> None:
    after, warnings = changed(admission, pod(container()))
    assert after == pod(container(env=NONE))
    assert warnings == []


def test_a_pod_with_our_own_annotation_is_isolated_too(admission: Admission) -> None:
    after, _ = changed(admission, pod(container(count=2), annotations={SCHEDULING_SPEC: "leafCellNumber: 2"}))
    assert enabled(after) == ["main"]
    assert after["spec"]["containers"][0]["env"] == OURS
    without, _ = changed(admission, pod(container(), annotations={SCHEDULING_SPEC: "leafCellNumber: 2"}))
    assert enabled(without) == ["main"]


def test_the_limit_stays_where_it_is(admission: Admission) -> None:
    given = pod(container("a", 1), container("b"))
    given["spec"]["containers"][1]["resources"] = {"limits": {ENABLE_LIMIT: "1"}}
    assert enabled(changed(admission, given)[0]) == ["b"]


def test_a_variable_of_another_meaning_is_replaced_with_a_warning(admission: Admission) -> None:
    after, warnings = changed(admission, pod(container(count=1, env=[{"name": VARIABLES[0], "value": "all"}])))
    assert after["spec"]["containers"][0]["env"] == OURS
    assert warnings == [f"hived: container main: {VARIABLES[0]} now names the devices of the pod's cells"]


def test_a_container_that_is_added_later_is_counted_too(admission: Admission) -> None:
    after, _ = changed(admission, pod(container("a", 1)))
    after["spec"]["containers"].append(container("late", 2))
    again, _ = changed(admission, after)
    assert saved(again) == {"resource": NVIDIA, "total": 3, "containers": {"a": 1, "late": 2}}


@pytest.mark.parametrize("text", ["", "{", '{"resource": "x", "total": 9, "containers": {"main": 9}}', '{"total": 1}'])
def test_what_stood_in_the_annotation_before_counts_only_if_it_is_sound(admission: Admission, text: str) -> None:
    after, _ = changed(admission, pod(container(count=2), annotations={DEVICE_REQUESTS: text}))
    assert saved(after) == {"resource": NVIDIA, "total": 2, "containers": {"main": 2}}


def test_devices_of_two_kinds_are_left_to_the_author_with_a_warning(admission: Admission) -> None:
    given = pod(container("a", 1), container("b", 1, AMD))
    after, warnings = changed(admission, given)
    assert after == given
    assert warnings == [f"hived: it asks for {AMD} and {NVIDIA}; keep only one"]


@pytest.mark.parametrize(("limit", "request_"), [("1", "2"), ("0.5", "0.5"), ("-1", "-1")])
def test_what_kubernetes_refuses_or_nobody_writes_is_not_hidden_from_it(
    admission: Admission, limit: str, request_: str
) -> None:
    given = pod(container(resources={"limits": {NVIDIA: limit}, "requests": {NVIDIA: request_}}))
    assert changed(admission, given) == (given, [])


def test_a_mistake_in_a_dialect_is_told_at_once(admission: Admission) -> None:
    labels = GANG | {"pod-group.scheduling.sigs.k8s.io/min-available": "many"}
    after, (warning,) = changed(admission, pod(container(count=1), labels=labels))
    assert enabled(after) == ["main"]
    assert "many" in warning


@pytest.mark.parametrize("more", [{"operation": "UPDATE"}, {"subResource": "status"}, {"object": None}])
def test_only_the_creation_of_pods_is_changed(admission: Admission, more: dict[str, Any]) -> None:
    assert asked(admission, pod(container(count=1)), **more) == {"uid": "u", "allowed": True}


GOOD = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 5000,
        json.dumps(GOOD | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(GOOD | {"kind": "Pod"}).encode(),
        json.dumps(GOOD | {"request": {}}).encode(),
        json.dumps(GOOD | {"request": GOOD["request"] | {"object": {"metadata": {}, "spec": 1}}}).encode(),
        json.dumps(GOOD | {"request": GOOD["request"] | {"object": pod(container(count=1, env=[1]))}}).encode(),
        json.dumps(GOOD | {"request": GOOD["request"] | {"object": pod({"resources": {"limits": []}})}}).encode(),
    ],
)  # fmt: skip
def test_a_malformed_review_is_an_error_of_the_caller(admission: Admission, body: bytes) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        review(admission, body)
    assert caught.value.code == 400


def test_a_review_of_millions_of_brackets_is_not_read(admission: Admission) -> None:
    """One of 2.8 MB took 1.7 s, in which nothing else was answered."""
    lists = ",".join(["[" * 500 + "]" * 500] * 600)
    body = f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"x","object":[{lists}]}}}}'
    with pytest.raises(UserError, match="commas and brackets, at most"):
        review(admission, body.encode())


def test_a_pod_without_names_anywhere_is_left_to_the_api_server(admission: Admission) -> None:
    given = {"metadata": {"generateName": "p-"}, "spec": {"schedulerName": "hived-research", "containers": [{}]}}
    after = {**given, "spec": {**given["spec"], "containers": [{"env": NONE}]}}
    assert changed(admission, given) == (after, [])


@pytest.mark.parametrize("count", ["9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_count_that_is_no_number_of_kubernetes_is_left_to_the_api_server(admission: Admission, count: str) -> None:
    given = pod(container(count=count))
    assert changed(admission, given) == (given, [])


@pytest.mark.parametrize("count", ["1k", "9" * 11])
def test_a_count_that_no_cluster_can_have_is_refused(admission: Admission, count: str) -> None:
    answer = asked(admission, pod(container(count=count)), is_allowed=False)
    assert "can never run" in answer["status"]["message"]


def test_saved_counts_that_no_cluster_can_have_are_forgotten(admission: Admission) -> None:
    text = json.dumps({"resource": NVIDIA, "total": 1, "containers": {"side": 10**18}})
    after, _ = changed(admission, pod(container(count=2), container("side"), annotations={DEVICE_REQUESTS: text}))
    assert saved(after) == {"resource": NVIDIA, "total": 2, "containers": {"main": 2}}


# ---- foreign devices


@pytest.fixture(scope="module")
def refusing() -> Admission:
    cluster = load_text(CONFIGURATION, "hivedscheduler.yaml").cluster
    return Admission(
        cluster,
        PodRules(
            resources={"MI300": AMD},
            foreign_devices={AMD: Foreign.OCCUPY},
            node_labels={"V100": {"model": "v100"}},
        ),
        labels_of=lambda namespace: {EXEMPT: ALLOW} if namespace == "gpu-operator" else {"team": "blue"},
    )


def on_node(given: Any, node: str) -> Any:
    given["spec"]["nodeName"] = node
    return given


def of_daemon_set(given: Any, node: str) -> Any:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    given["spec"]["affinity"] = {"nodeAffinity": required}
    return given


def selecting(given: Any, **labels: str) -> Any:
    given["spec"]["nodeSelector"] = labels
    return given


def other(resource: str = NVIDIA, **metadata: Any) -> Any:
    return pod(container(count=1, resource=resource), scheduler="default-scheduler", **metadata)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            other(),
            "on the nodes of this cluster: set schedulerName to hived or hived-research or hivedscheduler-ds-rese",
        ),
        (on_node(other(), "a"), "on node a: leave nodeName out and set schedulerName to hived or "),
        (on_node(pod(container(count=1)), "a"), "on node a: leave nodeName out"),
        (of_daemon_set(other(), "b"), "on node b: set schedulerName to hived or "),
        (selecting(other(), model="v100"), "on the nodes of this cluster: set schedulerName to hived or "),
    ],
)
def test_a_pod_that_would_take_devices_past_hived_is_refused(refusing: Admission, given: Any, message: str) -> None:
    answer = asked(refusing, given, is_allowed=False)
    assert answer["status"]["code"] == 403
    assert answer["status"]["message"].startswith(f"hived: it asks for {NVIDIA}, which hived gives away {message}")


@pytest.mark.parametrize(
    "given",
    [
        other(AMD),
        pod(container(), scheduler="default-scheduler"),
        on_node(other(), "elsewhere"),
        of_daemon_set(other(), "elsewhere"),
        selecting(other(), model="a100"),
        pod(container(count=1)),
    ],
)
def test_a_pod_that_leaves_the_devices_of_hived_alone_passes(refusing: Admission, given: Any) -> None:
    assert asked(refusing, given, is_allowed=True)["allowed"]


@pytest.mark.parametrize(
    ("namespace", "is_allowed"), [("kube-system", True), ("gpu-operator", True), ("kube-system-2", False)]
)
def test_pods_of_the_clusters_own_namespaces_pass(refusing: Admission, namespace: str, is_allowed: bool) -> None:
    """Such as those of an operator, which test each device of a node."""
    given = on_node(other(namespace=namespace), "a")
    assert asked(refusing, given, is_allowed=is_allowed)["allowed"] is is_allowed


@pytest.mark.parametrize(("group", "is_allowed"), [("system:nodes", True), ("tenants", False)])
def test_what_stands_for_a_static_pod_passes_if_a_kubelet_creates_it(
    refusing: Admission, group: str, is_allowed: bool
) -> None:
    mirror = on_node(other(annotations={"kubernetes.io/config.mirror": "1"}), "a")
    answer = asked(refusing, mirror, is_allowed=is_allowed, userInfo={"username": "u", "groups": [group]})
    assert answer["allowed"] is is_allowed


def test_nothing_is_refused_where_the_configuration_says_so(admission: Admission) -> None:
    assert asked(admission, on_node(other(), "a")) == {"uid": "u", "allowed": True}


MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture(scope="module")
def mixed() -> Admission:
    """A node with GPUs, MIG devices and CPUs, as three leaf cell types."""
    text = """\
foreignDevices: {nvidia.com/gpu: occupy, nvidia.com/mig-1g.10gb: occupy}
physicalCluster:
  skuTypes:
    A100: {gpu: 1, cpu: 4, memory: 8Gi}
    SLICE: {gpu: 1, resource: nvidia.com/mig-1g.10gb}
    CPU: {gpu: 0, cpu: 1, memory: 1Gi}
  cellTypes:
    A100-NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}
    SLICE-NODE: {childCellType: SLICE, childCellNumber: 14, isNodeLevel: true}
    CPU-NODE: {childCellType: CPU, childCellNumber: 8, isNodeLevel: true}
  physicalCells:
  - {cellType: A100-NODE, cellAddress: a}
  - {cellType: SLICE-NODE, cellAddress: a}
  - {cellType: CPU-NODE, cellAddress: a}
virtualClusters:
  research: {virtualCells: [{cellType: A100-NODE, cellNumber: 1}, {cellType: CPU-NODE, cellNumber: 1}]}
"""
    configuration = load_text(text, "hivedscheduler.yaml")
    return Admission(configuration.cluster, configuration.rules)


@pytest.mark.parametrize(("leaf_type", "sees"), [("A100", True), ("", True), ("CPU", False), ("SLICE", False)])
def test_cells_that_are_no_numbered_devices_give_no_devices(mixed: Admission, leaf_type: str, sees: bool) -> None:
    """Numbers of CPUs, or of MIG devices, are other pods' GPUs to the container runtime."""
    reader = container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": SOURCE}])
    given = pod(
        reader, annotations={SCHEDULING_SPEC: f"virtualCluster: research\nleafCellNumber: 2\nleafCellType: {leaf_type}"}
    )
    first = changed(mixed, given)[0]["spec"]["containers"][0]["env"][0]
    assert first == (OURS[0] if sees else NONE[0])


def test_mig_devices_of_cells_are_left_to_the_device_plugin(mixed: Admission) -> None:
    after, warnings = changed(mixed, pod(container(count=2, resource=MIG), container("side")))
    main, side = after["spec"]["containers"]
    assert main["resources"]["limits"] == {MIG: "2", "cpu": "1", ENABLE_LIMIT: 1}
    assert "env" not in main
    assert side["env"] == NONE[:2]
    assert DEVICE_REQUESTS not in after["metadata"].get("annotations", {})
    assert warnings == []
    assert requested(convert(after, Pod), MIG) == 2
