"""A loopback server that answers as a service with one waiting gang, one running group and one bad node."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from hived_cli.helpers.waits import has_ended
from hived_extender.api import paths
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import (
    BadNode,
    Certificate,
    FreeCells,
    Holder,
    IfArgs,
    IfResult,
    Job,
    Jobs,
    NodeView,
    Preempted,
    Unblock,
    When,
    Why,
)
from tests.stub_server import Request, StubServer

LONG_AGO = "2026-01-01T00:00:00Z"
REASON = "vision has 1 of 3 in use by train-7 (priority 100) and node dgx-3 is NotReady"
SENTENCE = f"needs 2 nodes of 8 H100 each; {REASON}"
GANG = Job(
    name="podgroup/lab/gang", state="Waiting", namespace="lab", user="me", vc="vision", priority=50,
    asks="2 nodes of 8 H100 each", pods=["lab/gang-0", "lab/gang-1"], since=LONG_AGO, cause="in-use", sentence=SENTENCE,
    when=When(kind="bounded", by="2026-01-01T01:00:00Z", unless="a newer job comes first", position=2),
)  # fmt: skip
TRAIN = Job(
    name="me~train/default", state="Running", namespace="default", user="me", vc="vision", priority=100,
    asks="1x8 H100", pods=["default/train-worker-0"], nodes=["dgx-1"], since=LONG_AGO,
)  # fmt: skip
SOLO = Job(
    name="default/solo", state="Running", namespace="default", vc="lang", priority=-1, asks="1x1 H100",
    pods=["default/solo"], nodes=["dgx-2"],
)  # fmt: skip
GONE = Job(
    name="podgroup/lab/gone", state="Preempted", namespace="lab", vc="lang", priority=-1, asks="8 GPUs",
    pods=["lab/gone-0"], since=LONG_AGO, sentence="preempted at Jan 1 00:00 for gang",
    preempted=Preempted(at=LONG_AGO, by=GANG.name, namespace="lab"),
)  # fmt: skip
CERTIFICATE = Certificate(
    sentence=SENTENCE, cause="in-use", also=["bad"], vc="vision", chain="H100-POOL", level="H100-NODE",
    unit="node", leaf_type="H100",
    asks="2 nodes of 8 H100 each", asked=2, total=3, free=1, in_use=1, bad=1, largest_fit=8,
    holders=[Holder(group="train-7", vc="vision", priority=100, cells=8, nodes=["dgx-1"], since=LONG_AGO,
                    until="2026-01-01T01:00:00Z")],
    more_holders=3,
    bad_nodes=[BadNode("dgx-3", "NotReady", LONG_AGO)],
    unblock=[Unblock(change="ends=train-7", text="train-7 ends"),
             Unblock(change="cells=vision:+1xH100 NODE", text="vision is promised 1 more", victims=["default/solo"])],
)  # fmt: skip
WHY = Why(job=GANG, certificate=CERTIFICATE, when=GANG.when)
NODES = [
    NodeView(node="dgx-1", cells=8, groups=["me~train/default"]),
    NodeView(node="dgx-3", is_bad=True, reason="NotReady", since=LONG_AGO, cells=8, lost=2),
]
FREE = [
    FreeCells(vc="vision", chain="H100-POOL", level="H100", leaves=1, promised=24, in_use=8, bad=8, free=8),
    FreeCells(vc="vision", chain="H100-POOL", level="H100-NODE", leaves=8, promised=3, in_use=1, bad=1, free=1),
    FreeCells(vc="lang", chain="H100-POOL", level="H100", leaves=1, promised=8, lent=1, free=8),
]


class WaitingService(StubServer):
    """See the module. `jobs`, `nodes` and `free` may be changed while it serves; `whys` has the answers by name.

    `told` has the status of every answer, in order. With `is_old` all of its paths are unknown, as to an older service.
    """

    def __init__(self, *, is_old: bool = False) -> None:
        super().__init__(self._answer)
        self.jobs = [GANG, SOLO, TRAIN]
        self.nodes = NODES
        self.free = FREE
        self.whys: dict[str, Why] = {GANG.name: WHY, TRAIN.name: Why(job=TRAIN), SOLO.name: Why(job=SOLO)}
        self.trial = IfResult(starts=True, nodes=["dgx-1", "dgx-2"], victims=["train-7"])
        self.asked: list[IfArgs] = []
        self.told: list[int] = []
        self.is_old = is_old
        self.unseen: list[Job] = []
        """Jobs that are not known yet to the first list that is asked for, and are to later ones."""
        self.ended: list[Job] = []
        """Jobs that have ended, which are in no other list."""
        self.queued: dict[str, QueuedJob] = {}
        """Jobs that wait in queues, by each of their names."""
        self.is_down = False

    def _answer(self, request: Request) -> tuple[Any, ...]:
        status, value, *headers = self._of_path(request)
        body = msgspec.json.encode(value)
        if status == 200 and request.method == "GET":
            tag = f'W/"{hashlib.sha256(body).hexdigest()[:16]}"'
            headers.append(("ETag", tag))
            if request.headers.get("If-None-Match") == tag:
                status, body = 304, b""
        self.told.append(status)
        return status, body, *headers

    def _of_path(self, request: Request) -> tuple[Any, ...]:
        url = urlsplit(request.target)
        path = unquote(url.path)
        wanted = parse_qs(url.query, keep_blank_values=True)
        if self.is_down:
            return 503, "not ready: kernels are being loaded"
        if self.is_old:
            return 404, f"Not Found: {request.method} {path}"
        if path == paths.JOBS_PATH:
            there = [*self.jobs, *(self.ended if "ended" in wanted else ())]
            found = [job for job in there if _is_wanted(job, wanted)]
            self.jobs, self.unseen = [*self.jobs, *self.unseen], []
            return 200, Jobs(items=found)
        if path == paths.NODES_PATH:
            chosen = wanted.get("drained", [node.node for node in self.nodes])
            return 200, [node for node in self.nodes if node.node in chosen and (node.is_bad or "bad" not in wanted)]
        if path == paths.FREE_CELLS_PATH:
            return 200, self.free
        if path == paths.IF_PATH:
            self.asked.append(msgspec.json.decode(request.body, type=IfArgs))
            return 200, self.trial
        if path.startswith(paths.GROUPS_PATH):
            return 404, "Affinity group does not exist since it is not allocated or preempting"
        for name, queued in self.queued.items():
            if path == paths.queued_job_path(name):
                return 200, queued
        name = path.removeprefix(paths.WHY_PATH)
        return (200, self.whys[name]) if name in self.whys else (404, f"there is no job {name}")


def _is_wanted(job: Job, wanted: Mapping[str, Sequence[str]]) -> bool:
    others = {name: values for name, values in wanted.items() if name not in ("queued", "ended", "new")}
    return ("ended" not in wanted or has_ended(job)) and all(
        getattr(job, name) in values for name, values in others.items()
    )
