"""A service as `hived config` sees it: the paths below /v1/config on a loopback port, with a history of its own.

What differs is told by the code that really compares; who is affected is what a test says.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hived_config.compare import compare
from hived_config.document import ConfigError
from hived_config.loader import load_text
from tests.stub_server import Request, StubServer

TEXT = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
virtualClusters:
  a:
    virtualCells:
    - {cellType: NODE, cellNumber: 2}
"""
LESS = TEXT.replace("cellNumber: 2", "cellNumber: 1")
BROKEN = TEXT.replace("cellAddress: n1", "cellAdress: n1").replace("childCellNumber: 4", "childCellNumber: 0")

Json = dict[str, Any]


def openpai(text: str) -> str:
    """The text as OpenPAI's services-configuration.yaml has it, beside the password of another service."""
    inner = "".join(f"    {line}\n" for line in text.splitlines())
    return f"rest-server:\n  default-pai-admin-password: hunter2\nhivedscheduler:\n  config: |\n{inner}"


def hit(name: str, verdict: str = "lazilyPreempted", reason: str = "a has 1 NODE instead of 2") -> Json:
    """A group of two pods that something becomes of."""
    pods = [f"{name}-0", f"{name}-1"]
    return {"name": name, "vc": "a", "priority": 5, "pods": pods, "verdict": verdict, "reason": reason}


@dataclass
class Service:
    """The state of the service. `affected` has, for one look after the other, who is affected; the last one stays."""

    texts: list[str] = field(default_factory=lambda: [TEXT])
    affected: list[list[Json]] = field(default_factory=lambda: [[]])
    downgrades: bool = False
    is_pushable: bool = True
    cluster_id: str = ""
    refused: Json | None = None
    record: str = ""
    meanwhile: Callable[["Service"], tuple[int, Any] | None] = lambda service: None
    """An action right before a push, and the answer that the push is to get; status 0 is none at all."""
    pushes: list[Json] = field(default_factory=list)
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    whys: list[tuple[str, str]] = field(default_factory=lambda: [("", "")])
    address: str = ""

    @property
    def newest(self) -> int:
        return len(self.texts)

    def _entry(self, number: int) -> Json:
        text = self.texts[number - 1]
        who, why = self.whys[number - 1]
        when = f"2026-01-0{number}T00:00:00Z"
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return {"version": number, "when": when, "who": who, "why": why, "sha256": sha256}

    def add(self, text: str, who: str = "admin", why: str = "") -> None:
        self.texts.append(text)
        self.whys.append((who, why))

    def _report(self, text: str, file: str, affected: list[Json]) -> Json:
        report = {
            "baseVersion": self.newest, "identical": False, "refusals": [], "warnings": [], "changes": {},
            "groups": {"unaffected": 3, "affected": []}, "waiting": [], "affectsRunning": False,
            "needsAllowDowngrade": False,
        }  # fmt: skip
        try:
            new = load_text(text, file, environ={})
        except ConfigError as error:
            return report | {"refusals": [str(mistake) for mistake in error.mistakes]}
        changes = compare(load_text(self.texts[-1], "in force", environ={}), new)
        return report | {
            "identical": changes.is_empty,
            "changes": msgspec.to_builtins(changes),
            "groups": {"unaffected": 3, "affected": affected},
            "affectsRunning": any(group["verdict"] == "lazilyPreempted" for group in affected),
            "needsAllowDowngrade": self.downgrades,
            "refusals": ["it takes from a running group what its VC is guaranteed"] if self.downgrades else [],
        }

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/v1/config":
            current = self._entry(self.newest) | {
                "text": self.texts[-1],
                "source": "ConfigMap hived-system/hived-config",
            }
            return 200, current | {
                "clusterId": self.cluster_id, "isPushable": self.is_pushable, "refused": self.refused,
                "record": self.record,
            }  # fmt: skip
        numbers = range(self.newest, 0, -1)
        if path == "/v1/config/versions":
            return 200, {"items": [self._entry(number) for number in numbers]}
        number = path.removeprefix("/v1/config/versions/")
        if number.isdecimal() and int(number) in numbers:
            return 200, self._entry(int(number)) | {"text": self.texts[int(number) - 1]}
        return 404, f"{path} is not here"

    def post(self, path: str, body: Json) -> tuple[int, Any]:
        if path not in ("/v1/config", "/v1/config/plan"):
            return 404, f"{path} is not here"
        affected = self.affected.pop(0) if len(self.affected) > 1 else self.affected[0]
        if path == "/v1/config/plan":
            return 200, self._report(body["text"], body["file"], affected)
        self.pushes.append(body)
        answer = self.meanwhile(self)
        if answer is not None:
            return answer
        if body["baseVersion"] != self.newest:
            return 409, {"message": "another version was pushed", "plan": None}
        report = self._report(body["text"], body["file"], affected)
        if self.downgrades and not body["allowDowngrade"]:
            return 422, {"message": "refused", "plan": report}
        if any(body["agreed"].get(group["name"]) != group["verdict"] for group in affected):
            return 409, {"message": "running work would be affected otherwise than was agreed to", "plan": report}
        self.add(body["text"], body["who"], body["message"])
        return 200, {"version": self.newest, "outcome": report}


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    """The service at a port of this machine, `service.address`."""

    def answer(request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return service.get(request.target)
        service.requests.append((request.target, request.body))
        return service.post(request.target, json.loads(request.body))

    with StubServer(answer) as server:
        service.address = server.url
        yield service
