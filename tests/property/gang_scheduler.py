"""A kube-scheduler with filters of its own: which nodes it offers to each pod, and which pods it has yet to bind.

Some nodes have a taint, some are full, and some are refused to a pod by a filter that only kube-scheduler knows, as for
volumes. An answer with a node is bound at once or later; a binding that is held back is tried again, or given up.
"""

from concurrent.futures import Future

from hived.values.errors import UserError
from hived_extender.jobs.wire import BindArgs, Node
from tests.extender.machine.small_cluster import Json, filter_args, node_json, preempt_args, to_node
from tests.property.choices import Choices
from tests.property.gang_cluster import Api, Replica, healthy_nodes
from tests.property.gang_jobs import NODE_SIZE, TAINT, Template


class Forbidden(AssertionError):
    """The service does with a pod something that kube-scheduler did not allow."""


class KubeScheduler:
    """See the module. `templates` are of all pods that there ever were, by uid."""

    def __init__(self, choices: Choices, api: Api, templates: dict[str, Template]) -> None:
        self._choices = choices
        self._api = api
        self._templates = templates
        self.nodes = healthy_nodes()
        self.tainted: set[str] = set()
        self.refused: set[tuple[str, str]] = set()  # uid and node, by filters that nobody else knows
        self.answers: dict[str, str] = {}  # uid -> the node to bind it to
        self._holds: dict[str, Future[None] | None] = {}  # uid -> for how long its binding is held back
        self.asked: dict[str, str] = {}  # uid -> its version at the last question, "" if it is to be asked about again
        self.offered: dict[str, list[str]] = {}  # uid -> nodes at the last question
        self.accepted: dict[str, list[str]] = {}  # uid -> nodes of the last answer that had any

    def node(self, name: str) -> Node:
        """A node as watches tell of it."""
        body = node_json(name, self.nodes[name])
        if name in self.tainted:
            body["spec"]["taints"] = [{"key": TAINT, "effect": "NoSchedule"}]
        return to_node(body)

    def is_due(self, pod: Json) -> bool:
        """Has the pod changed since the last question, or failed, or could it be offered a node for the first time?"""
        uid = pod["metadata"]["uid"]
        if pod["metadata"]["resourceVersion"] != self.asked.get(uid):
            return True
        return not self.offered.get(uid) and bool(self.feasible(pod))

    def let_in(self, uid: str, node: str) -> None:
        """A filter of kube-scheduler's own refuses the node to the pod no more; it tries the pod again by itself."""
        self.refused.discard((uid, node))
        if uid in self.asked:
            self.asked[uid] = ""

    def feasible(self, pod: Json) -> list[str]:
        """The nodes that its filters leave."""
        template, used = self._templates[pod["metadata"]["uid"]], self._used()
        return [name for name in self._open_to(pod) if used.get(name, 0) + template.gpus <= NODE_SIZE]

    def ask(self, leader: Replica, pod: Json) -> str:
        """Ask where a pod may run, or whom it may preempt; returns the answer, which is noted."""
        meta = pod["metadata"]
        uid, offered = meta["uid"], self.feasible(pod)
        self.asked.setdefault(uid, "")
        self.offered[uid] = offered
        try:
            if not offered:
                leader.service.preempt_victims(preempt_args(pod, self._open_to(pod)))
                self.asked[uid] = meta["resourceVersion"]
                return f"{meta['name']}: no node is offered"
            result = leader.service.filter_nodes(filter_args(pod, offered))
        except UserError as error:
            return f"{meta['name']}: {error.message}"  # and kube-scheduler tries again soon
        self.asked[uid] = meta["resourceVersion"]
        if not result.node_names:
            return f"{meta['name']}, offered {offered}: {next(iter((result.failed_nodes or {'': ''}).values()))}"
        if not set(result.node_names) <= set(offered):
            raise Forbidden(f"{uid} was offered {offered}, and gets {result.node_names}")
        self.accepted[uid] = list(result.node_names)
        self.answers[uid] = self._choices.pick(result.node_names)
        return f"{meta['name']}, offered {offered} -> {self.answers[uid]}"

    def bind(self, leader: Replica, uid: str, *, is_patient: bool) -> str:
        """Bind a pod, or go on waiting if its binding is held back; returns the outcome."""
        name, template = self.answers[uid], self._templates[uid]
        hold = self._holds.setdefault(uid, leader.service.hold_of(uid))
        if hold is not None and not hold.done() and is_patient:
            return f"{template.name} is held back"
        self._forget_answer(uid)
        try:
            leader.service.bind_pod(BindArgs(template.name, template.job.namespace, uid, name))
        except UserError as error:
            self._ask_again(uid, name)
            return f"{template.name}: {error.message}"
        return f"{template.name} is bound to {name}"

    def _ask_again(self, uid: str, name: str) -> None:
        """A binding comes to nothing: the pod is tried again, and all whom its devices may have kept off the node."""
        for other, offered in self.offered.items():
            if other in self.asked and (other == uid or name not in offered):
                self.asked[other] = ""

    def check_bound(self, pod: Json) -> None:
        """A bound pod is where it was allowed when it was asked about last."""
        uid, name = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if name not in self.offered.get(uid, ()) and not self._templates[uid].ignores_offers:
            raise Forbidden(f"{uid} is bound to {name}, but was offered {self.offered.get(uid)}")

    def gone(self, uid: str) -> None:
        """A pod is deleted."""
        if uid in self.answers:
            self._ask_again(uid, self.answers[uid])
        self._forget_answer(uid)
        self.refused = {one for one in self.refused if one[0] != uid}

    def _forget_answer(self, uid: str) -> None:
        self.answers.pop(uid, None)
        self._holds.pop(uid, None)

    def _open_to(self, pod: Json) -> list[str]:
        """The nodes that could take the pod if they were empty."""
        uid = pod["metadata"]["uid"]
        tolerates = bool(pod["spec"].get("tolerations"))
        return [
            name
            for name, is_healthy in self.nodes.items()
            if is_healthy and (tolerates or name not in self.tainted) and (uid, name) not in self.refused
        ]

    def _used(self) -> dict[str, int]:
        """Devices of each node that pods have, or have by an answer that is not carried out yet."""
        used: dict[str, int] = {}
        for pod in self._api.pods.values():
            uid = pod["metadata"]["uid"]
            name = pod["spec"]["nodeName"] or self.answers.get(uid)
            if name and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                used[name] = used.get(name, 0) + self._templates[uid].gpus
        return used
