"""How long a pod runs and what becomes of its status: pure functions behind the nodes.

Annotations of a pod say what a real workload would show by itself:

    embedded.hived/run-seconds    how long it runs (default: until it is deleted)
    embedded.hived/exit-code      with what it ends (default 0; anything else is Failed)
    embedded.hived/stop-seconds   how long it takes to stop when it is deleted (default 0, at most the grace period)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hived.errors import UserError
from hived_extender.kube_rules.demands import Toleration
from hived_extender.kube_rules.nodes import Taint
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import set_condition, timestamp

PREFIX = "embedded.hived/"
RUN_SECONDS = PREFIX + "run-seconds"
EXIT_CODE = PREFIX + "exit-code"
STOP_SECONDS = PREFIX + "stop-seconds"

_POD_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The lifetime that annotations of a pod ask for; `run_s` is infinite for a pod that runs until it is deleted."""

    run_s: float
    exit_code: int
    stop_s: float


def lifetime_of(annotations: Mapping[str, str]) -> Lifetime:
    """Return what `annotations` ask for; UserError says which of them cannot be read."""
    exit_code = _number(annotations, EXIT_CODE, 0.0)
    if not exit_code.is_integer() or exit_code > 255:
        raise UserError(f"annotation {EXIT_CODE}: expected a whole number in 0..255, found {annotations[EXIT_CODE]!r}")
    run_s, stop_s = _number(annotations, RUN_SECONDS, math.inf), _number(annotations, STOP_SECONDS, 0.0)
    return Lifetime(run_s, int(exit_code), stop_s)


def stay_s(pod: models.Pod, taints: Sequence[models.Taint]) -> float:
    """Return how long a pod may stay on a node with these taints, infinite if none of them ends it."""
    borne: list[float] = []
    for taint in (Taint(one.key, one.value, one.effect) for one in taints if one.effect == "NoExecute"):
        bearing = [one for one in pod.spec.tolerations if taint.is_borne([_toleration(one)])]
        if not bearing:
            return 0.0
        borne += [float(max(0, one.toleration_seconds)) for one in bearing if one.toleration_seconds is not None]
    return min(borne, default=math.inf)


def evicted_by_taint(status: Body, pod: models.Pod) -> Body:
    """Return the status of a pod that is about to go because of a taint of its node."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": f"Taint manager: deleting due to NoExecute taint on {pod.spec.node_name}",
    }
    return set_condition(status, condition)


def running(pod: models.Pod, status: Body, pod_ip: str) -> Body:
    """Return the status of a pod whose containers have just started."""
    now = timestamp()
    status = {
        **status,
        "phase": "Running",
        "startTime": now,
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "containerStatuses": [
            _container_status(container, is_ready=True, state={"running": {"startedAt": now}})
            for container in pod.spec.containers
        ],
    }
    for condition in _POD_CONDITIONS:
        status = set_condition(status, {"type": condition, "status": "True"})
    return status


def finished(pod: models.Pod, status: Body, exit_code: int) -> Body:
    """Return the status of a pod whose containers have all ended with `exit_code`."""
    reason = "Error" if exit_code else "Completed"
    ended = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": status.get("startTime", timestamp()),
        "finishedAt": timestamp(),
    }
    status = {
        **status,
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": [
            _container_status(container, is_ready=False, state={"terminated": ended})
            for container in pod.spec.containers
        ],
    }
    for condition in ("Ready", "ContainersReady"):
        status = set_condition(status, {"type": condition, "status": "False", "reason": "PodCompleted"})
    return status


def refused(status: Body, why: str) -> Body:
    """Return the status of a pod that its node will not start."""
    return {**status, "phase": "Failed", "reason": "InvalidAnnotation", "message": why}


def _toleration(one: models.Toleration) -> Toleration:
    return Toleration(one.key, one.operator, one.value, one.effect)


def _number(annotations: Mapping[str, str], key: str, default: float) -> float:
    text = annotations.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UserError(f"annotation {key}: expected a number of at least 0, found {text!r}")
    return number


def _container_status(container: models.Container, is_ready: bool, state: Body) -> Body:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
