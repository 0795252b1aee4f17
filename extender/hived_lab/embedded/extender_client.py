"""Calling an extender as kube-scheduler does: one keep-alive connection, one call after another."""

import http.client
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hived.errors import HivedError, UserError
from hived_extender.api.paths import BIND_PATH, FILTER_PATH, PREEMPT_PATH
from hived_extender.pods.wire import BindResult, PreemptResult, encode

_STALE_CONNECTION = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)

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
    """A connection to the extender at `url`; to be used from one thread, `abort` from any."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UserError(f"the extender's address must be http://HOST:PORT, not {url!r}")
        self._prefix = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        self._is_aborted = False

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
        """End the call under way, which fails, and let every later one fail."""
        self._is_aborted = True
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _call(self, path: str, arguments: Body, answer_type: type[T]) -> T:
        body = encode(arguments)
        try:
            status, answer = self._post(path, body)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ExtenderError(f"no answer from the extender to {path}: {error!r}") from error
        if status != 200:
            raise ExtenderError(f"the extender answered {path} with {status}: {answer[:500].decode(errors='replace')}")
        try:
            return msgspec.json.decode(answer, type=answer_type)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ExtenderError(f"the extender's answer to {path} cannot be read: {error}") from error

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            return self._send(path, body)
        except _STALE_CONNECTION:
            # The server may close an idle connection at the very moment it is used again; every verb can be repeated.
            self._connection.close()
            return self._send(path, body)

    def _send(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._is_aborted:
            raise ConnectionAbortedError("no more calls are wanted")
        self._connection.request("POST", self._prefix + path, body, {"Content-Type": "application/json"})
        with self._connection.getresponse() as response:
            return response.status, response.read()
