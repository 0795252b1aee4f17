"""Pods of one template are read once."""

from typing import Any

import msgspec
import pytest

from hived_extender.jobs.wire import Pod
from hived_extender.kube_rules import demands
from hived_extender.kube_rules.demands import DemandsReader
from tests.extender.kube_rules.objects import expression, node_affinity, pod_affinity, spread


def pod_of_template(number: int, spec: dict[str, Any], **meta: Any) -> Pod:
    volumes = [{"name": f"kube-api-access-{number}", "projected": {}}]
    containers = [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]
    whole = {"containers": containers, "volumes": volumes, "nodeName": f"n{number}", **spec}
    return msgspec.convert({"metadata": {"name": f"p{number}", "namespace": "team", **meta}, "spec": whole}, Pod)


def test_pods_of_one_template_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Pod] = []
    read = demands.demands_of
    monkeypatch.setattr(demands, "demands_of", lambda pod, **options: reads.append(pod) or read(pod, **options))
    own = DemandsReader()
    kept = [own.read_pod(pod_of_template(number, {}, labels={"index": str(number)})) for number in range(10)]
    assert len(reads) == 1, kept


@pytest.mark.parametrize(
    ("spec", "meta"),
    [
        ({"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}, {}),
        ({"initContainers": [{"resources": {"limits": {"cpu": "3"}}}]}, {}),
        ({"initContainers": [{"resources": {"limits": {"cpu": "3"}}, "restartPolicy": "Always"}]}, {}),
        ({"containers": [{"ports": [{"hostPort": 1}]}]}, {}),
        ({"resources": {"requests": {"cpu": "7"}}}, {}),
        ({"overhead": {"cpu": "7"}}, {}),
        ({"tolerations": [{"operator": "Exists"}]}, {}),
        ({"nodeSelector": {"k": "v"}}, {}),
        ({"volumes": [{"name": "disk", "persistentVolumeClaim": {}}]}, {}),
        ({"resourceClaims": [{"name": "gpu"}]}, {}),
        (node_affinity({"matchExpressions": [expression("k", "Exists")]}), {}),
        (pod_affinity("podAffinity"), {}),
        (pod_affinity("podAffinity"), {"namespace": "other"}),
        (pod_affinity("podAntiAffinity", matchLabelKeys=["k"]), {"labels": {"k": "v"}}),
        (spread(matchLabelKeys=["k"]), {"labels": {"k": "v"}}),
        (spread(matchLabelKeys=["k"]), {"labels": {"k": "w"}}),
    ],
)
def test_a_pod_that_differs_from_those_read_before_is_read_by_itself(
    spec: dict[str, Any], meta: dict[str, Any]
) -> None:
    own, pod = DemandsReader(), pod_of_template(1, spec, **meta)
    kept = [own.read_pod(pod_of_template(0, each)) for each in ({}, spec)]
    assert own.read_pod(pod) == DemandsReader().read_pod(pod), kept
