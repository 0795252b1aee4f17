"""The Secret shared by all replicas: signing keys of bindings, originals of changed bindings, and costs of moves.

Tenants who may change a pod may change hived's annotations, if no admission policy forbids it. The leader then stores
the original here, out of their reach, so that a restart knows. Few pods need it.
"""

import logging
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.bind_info import parse_keys
from hived_extender.kube.client import KubeClient, KubeError

log = logging.getLogger(__name__)

KEYS = "keys"
CHANGED = "changed"
MOVES = "moves"
KEY_BYTES = 32

PACKED_LIMIT = 900_000
"""Characters in base64; a Secret has a mebibyte."""

UNPACKED_LIMIT = 64 * 2**20
"""Bytes; a Secret has a mebibyte."""

Changed = Mapping[str, Mapping[str, str]]
"""By uid, the annotations that hived gave the pod."""


class BindingSecret:
    """Reads and writes the Secret."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._kube = kube
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._path = f"{self._collection}/{name}"

    @property
    def source(self) -> str:
        """The Secret's name for users."""
        return f"Secret {self._path.split('/')[4]}/{self._name}"

    def keys(self) -> list[bytes]:
        """The keys, the signing one first. Makes a missing key or Secret.

        Raises KubeError, and UserError for a Secret without usable keys.
        """
        found = self._get_or_create()
        text = (found.get("data") or {}).get(KEYS, "")
        try:
            return parse_keys(b64decode(text).decode("ascii"), self.source)
        except ValueError as error:
            raise UserError(f"{self.source}: {KEYS} is not text: {error}") from None

    def changed(self) -> Changed:
        """The original annotations of changed pods, by uid. Raises KubeError."""
        packed = (self._kube.get(self._path).get("data") or {}).get(CHANGED, "")
        if not packed:
            return {}
        try:
            unpacking = zlib.decompressobj()
            text = unpacking.decompress(b64decode(packed), UNPACKED_LIMIT)
            return msgspec.json.decode(text, type=dict[str, dict[str, str]])
        except (ValueError, zlib.error) as error:
            log.error("changed bindings cannot be read", extra={"fields": {"where": self.source, "cause": str(error)}})
            return {}

    def keep(self, changed: Changed) -> None:
        """Store these originals, replacing earlier ones. Raises KubeError."""
        packed, left_out = _packed(changed)
        if left_out:
            log.error("changed bindings are too large", extra={"fields": {"where": self.source, "left_out": left_out}})
        try:
            self._kube.patch(self._path, {"data": {CHANGED: packed}})
        except KubeError as error:
            fields = {"where": self.source, "pods": len(changed), "reason": str(error)}
            log.error("changed bindings are not written down", extra={"fields": fields})
            raise

    def read_moves(self) -> tuple[bytes, str]:
        """The stored costs of moves, empty if none, and the Secret's version. Raises KubeError."""
        found = self._kube.get(self._path)
        try:
            return b64decode((found.get("data") or {}).get(MOVES, "")), _version(found)
        except ValueError as error:
            raise KubeError(0, "Invalid", f"{self.source}: {MOVES} is not base64: {error}") from None

    def write_moves(self, text: bytes, version: str) -> None:
        """Store the costs of moves if the Secret has this version. Raises KubeError."""
        self._kube.patch(
            self._path, {"metadata": {"resourceVersion": version}, "data": {MOVES: b64encode(text).decode()}}
        )

    def _get_or_create(self) -> dict[str, Any]:
        """The Secret with its keys; another replica may create them first."""
        data = {KEYS: b64encode(b64encode(os.urandom(KEY_BYTES))).decode()}
        try:
            found = self._kube.get(self._path)
            if (found.get("data") or {}).get(KEYS):
                return found
            self._kube.patch(self._path, {"metadata": {"resourceVersion": _version(found)}, "data": data})
        except KubeError as error:
            if error.is_not_found:
                self._create(data)
            elif not error.is_conflict:
                raise
        log.info("bindings are proved", extra={"fields": {"by": self.source}})
        return self._kube.get(self._path)

    def _create(self, data: Mapping[str, str]) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self._name}, "type": "Opaque", "data": data}
        try:
            self._kube.create(self._collection, body)
        except KubeError as error:
            if not error.is_conflict:
                raise


def _version(found: Mapping[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("resourceVersion", ""))


def _packed(changed: Changed) -> tuple[str | None, int]:
    """(the text to store, None for nothing; the number of pods left out, those with the most data)."""
    pods = sorted(changed, key=lambda uid: (sum(map(len, changed[uid].values())), uid))
    count = len(pods)
    while pods:
        text = msgspec.json.encode({uid: changed[uid] for uid in sorted(pods)}, order="sorted")
        packed = b64encode(zlib.compress(text)).decode()
        if len(packed) <= PACKED_LIMIT:
            return packed, count - len(pods)
        pods = pods[: len(pods) // 2]
    return None, count
