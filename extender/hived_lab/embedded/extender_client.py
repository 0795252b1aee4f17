"""Calling an extender as kube-scheduler does, over connections that are kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hived.errors import HivedError, UserError
from hived_extender.api.paths import BIND_PATH, FILTER_PATH, PREEMPT_PATH
from hived_extender.kube.connections import BrokenError, Connections
from hived_extender.pods.wire import BindResult, PreemptResult, encode

MOST_CALLS = 256
"""At once, as many as there are bindings under way."""

_HEADERS = {"Content-Type": "application/json"}

T = TypeVar("T")
Body = Mapping[str, Any]


class ExtenderError(HivedError):
    """The extender did not answer, or answered with an error."""


class _FilterAnswer(msgspec.Struct, rename="pascal"):
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that can take the pod; for the others why not, and whether removing pods would not help either."""

    nodes: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class ExtenderClient:
    """Calls to the extender at `url`; thread-safe."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UserError(f"the extender's address must be http://HOST:PORT, not {url!r}")
        self._connections = Connections(url, {}, most_idle=MOST_CALLS)
        self._timeout_s = timeout_s

    def filter(self, pod: Body, nodes: list[str]) -> Filtered:
        """Ask which of `nodes` can take `pod`. Raises ExtenderError."""
        answer = self._call(FILTER_PATH, {"Pod": pod, "Nodes": None, "NodeNames": nodes}, _FilterAnswer)
        if answer.error:
            raise ExtenderError(answer.error)
        chosen = answer.node_names or []
        if not set(chosen) <= set(nodes):
            raise ExtenderError(f"the extender chose {chosen!r}, which is not among the nodes it was asked about")
        return Filtered(chosen, answer.failed_nodes or {}, answer.failed_and_unresolvable_nodes or {})

    def preempt(self, pod: Body, candidates: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Ask whom to remove for `pod`; `candidates` are uids of possible victims by node, and so is the answer.

        Raises ExtenderError, also when the answer has a node without victims.
        """
        victims = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in candidates.items()
        }
        arguments = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        answer = self._call(PREEMPT_PATH, arguments, PreemptResult).node_name_to_meta_victims or {}
        chosen = {node: [pod.uid for pod in victims.pods] for node, victims in answer.items()}
        for node, uids in chosen.items():
            if node not in candidates or not uids:
                raise ExtenderError(f"expected at least one victim pod on a candidate node, found {uids!r} on {node!r}")
        return chosen

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Let the extender bind a pod. Raises ExtenderError."""
        arguments = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
        answer = self._call(BIND_PATH, arguments, BindResult)
        if answer.error:
            raise ExtenderError(answer.error)

    def abort(self) -> None:
        """End all calls under way, which fail, and let every later one fail."""
        self._connections.abort()

    def _call(self, path: str, arguments: Body, answer_type: type[T]) -> T:
        timeout_s = self._timeout_s
        try:
            reply = self._connections.call(
                "POST", path, _HEADERS, encode(arguments), connect_timeout_s=timeout_s, read_timeout_s=timeout_s
            )
        except BrokenError as error:
            cause = error.__cause__
            reason = (cause and cause.__cause__) or cause  # urllib3's own text names an address in memory
            raise ExtenderError(f"no answer from the extender to {path}: {reason!r}") from error
        if reply.status != 200:
            text = reply.body[:500].decode(errors="replace")
            raise ExtenderError(f"the extender answered {path} with {reply.status}: {text}")
        try:
            return msgspec.json.decode(reply.body, type=answer_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ExtenderError(f"the extender's answer to {path} cannot be read: {error}") from error
