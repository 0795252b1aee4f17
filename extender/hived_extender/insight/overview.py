"""The state of the whole service in one answer, from what its parts know: nothing is computed a second time."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hived import __version__
from hived.values.errors import HivedError
from hived.values.specs import Rules
from hived_config.settings import value_of
from hived_config.words import counted, listed_with
from hived_extender.api.queues import QueueReport
from hived_extender.api.status import (
    CertificateUse,
    FailedPod,
    HistoryFile,
    JobTotals,
    Notice,
    QueueTotals,
    Recovered,
    ServedCertificate,
    ShortPromise,
    Status,
)
from hived_extender.api.waiting import BadNode
from hived_extender.insight.answering import Answering, View
from hived_extender.insight.ended import DAY_S
from hived_extender.insight.queued import count_jobs
from hived_extender.insight.store import Store
from hived_extender.machine.certificates import rfc3339
from hived_extender.machine.cluster_cache import CORDONED, GONE
from hived_extender.machine.devices.guarantees import count_short_leaf_cells, shared_shortages, short_nodes
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import NotLeadingError
from hived_extender.queues.answering import QueueAnswers

SOON_S = 30 * DAY_S
"""A certificate that expires sooner is told of."""

ASKED_S = 600.0
"""Between two questions for the version of the API server."""

FIRST_ANSWER_S = 0.5
"""Until when an answer about the state waits for that version, while none is known."""

MOST_FAILED = 50


class Files(msgspec.Struct, frozen=True):
    """The certificates of this replica by use, and the file that the configuration wants for the history."""

    certificates: Sequence[tuple[CertificateUse, Path]] = ()
    history: str = ""


class Overview:
    """Answers for any thread. Cost: that of the list of jobs, which others share, of jobs that wait in queues, and
    O(leaf cells) in numpy.
    """

    def __init__(
        self,
        service: Service,
        answering: Answering,
        queues: QueueAnswers,
        store: Store,
        *,
        files: Files,
        replica: str,
        config_version: Callable[[], int],
        rules: Callable[[], Rules],
        kubernetes: Callable[[], str],
        are_followed: Callable[[], bool],
    ) -> None:
        """`kubernetes` asks for the version of the API server; `are_followed`: do watches of nodes and pods work?"""
        self._service, self._answering, self._queues, self._store = service, answering, queues, store
        self._files, self._replica, self._config_version, self._rules = files, replica, config_version, rules
        self._ask_kubernetes, self._are_followed = kubernetes, are_followed
        self._started_s = service.runner.wall_s
        self._lock = threading.Lock()
        self._kubernetes, self._asked_at = "", -ASKED_S
        self._asking: threading.Thread | None = None

    def look(self) -> Status:
        """The state of now."""
        service = self._service
        known = Status(
            state="stopped" if service.fault else "not leading",
            standing=service.fault or service.standing,
            replica=self._replica,
            started=rfc3339(self._started_s),
            version=__version__,
            config_version=self._config_version(),
            rules=value_of(self._rules()),
            queues=QueueTotals(is_enabled=self._queues.is_enabled),
            kubernetes=self._version_of_kubernetes(),
            kernels=service.kernels(),
            certificates=[_certificate(use, file) for use, file in self._files.certificates],
            history=self._history(),
        )
        if not service.is_ready:
            return msgspec.structs.replace(known, warnings=[*self._of_leading(known), *self._of_files(known)])
        try:
            view = self._answering.view()
            known = self._of_term(known, view)
        except NotLeadingError as error:  # its term has ended meanwhile
            return msgspec.structs.replace(known, standing=error.message, warnings=self._of_leading(known))
        warnings = [*self._of_cluster(known, view), *self._of_files(known)]
        return msgspec.structs.replace(known, state="degraded" if warnings else "healthy", warnings=warnings)

    def _of_term(self, known: Status, view: View) -> Status:
        """Return the status that only a leader knows."""
        snapshot, now_s = view.snapshot, view.snapshot.at
        began, failed = self._service.term_began()
        jobs, queues = count_jobs(view, self._queues), list[QueueReport]()
        if self._queues.is_enabled:
            with suppress(HivedError):  # they are about to begin
                queues = self._queues.queues()
        with snapshot.lock:
            state = snapshot.state
            short = [(vc, short_nodes(state, vc)) for vc in state.topology.vc_names]
            shared = [str(one) for one in shared_shortages(state)]
            nodes = len(state.topology.node_names)
        return msgspec.structs.replace(
            known,
            leads_since=rfc3339(began.at_s),
            nodes=nodes,
            bad_nodes=len(snapshot.bad),
            recovered=Recovered(
                at=rfc3339(began.at_s),
                bound=began.bound,
                waiting=began.waiting,
                queued=self._queues.went_on(began.at_s),
                failed=[FailedPod(pod, reason) for pod, reason in failed[:MOST_FAILED]],
                failed_count=len(failed),
            ),
            short=[
                ShortPromise(
                    vc=vc,
                    cells=sum(found.values()),
                    nodes=[_bad_node(view, node) for node in sorted(found)],
                )
                for vc, found in short
                if found
            ],
            shared=shared,
            jobs=JobTotals(
                now=dict(jobs.by_state),
                ended=dict(Counter(job.state for job in self._answering.ended(now_s - DAY_S))),
            ),
            queues=QueueTotals(
                is_enabled=self._queues.is_enabled,
                queues=len(queues),
                waiting=jobs.in_queues,
                running=sum(one.running for one in queues),
                borrowed=sum(one.borrowed for one in queues),
            ),
        )

    def _of_leading(self, known: Status) -> list[Notice]:
        if known.state == "stopped":
            return [
                Notice(f"it has stopped after an internal error: {known.standing}", "restart it, and report its log")
            ]
        remedy = "ask the Service of hived, which reaches the leader; /readyz says when this replica leads"
        return [Notice(f"this replica does not lead: {known.standing or 'it is starting'}", remedy)]

    def _of_cluster(self, known: Status, view: View) -> list[Notice]:
        found = []
        if not self._are_followed():
            found.append(
                Notice(
                    "a watch of nodes or pods is broken, and decisions may rest on old news",
                    "look at the API server; the log of hived says why",
                )
            )
        if known.recovered is not None and known.recovered.failed_count:
            count = counted(known.recovered.failed_count, "pod")
            remedy = "delete them, or push a configuration in which their cells exist"
            found.append(Notice(f"{count} without cells on a node: others may be given the same devices", remedy))
        for one in known.short:
            nodes = _listed([each.node for each in one.nodes])
            gpus = counted(one.cells, "GPU")
            text = f"virtual cluster {one.vc} lacks {gpus} that it is promised, on {nodes}"
            found.append(Notice(text, f"{_mending(one.nodes)} (hived get nodes --bad), or lower the promise"))
        found += [
            Notice(one, "repair or uncordon nodes (hived get nodes --bad), or lower a promise") for one in known.shared
        ]
        if known.bad_nodes and not (known.short or known.shared):
            bad = f"{known.bad_nodes} of {counted(known.nodes, 'node')} {'is' if known.bad_nodes == 1 else 'are'} bad"
            with view.snapshot.lock:
                kept = count_short_leaf_cells(view.snapshot.state, in_use=True)
            until = [f"{counted(count, 'GPU')} of {vc}" for vc, count in kept.items() if count]
            ending = f", {listed_with(until)} until the jobs there end" if until else ""
            text = f"{bad}; all promises hold{ending}"
            found.append(Notice(text, "hived get nodes --bad says why"))
        if known.jobs.now.get("Refused"):
            refused = known.jobs.now["Refused"]
            text = f"{counted(refused, 'job')} can never run, or {'is' if refused == 1 else 'are'} in no queue"
            found.append(Notice(text, "hived get jobs --state Refused says why"))
        if known.queues.is_enabled and not self._queues.has_begun:
            found.append(
                Notice("queues have not begun, and no queued job starts", "wait for a moment, then see the log")
            )
        return found

    def _of_files(self, known: Status) -> list[Notice]:
        found, now_s = [], self._service.runner.wall_s
        for one in known.certificates:
            left_s = _seconds(one.until) - now_s if one.until else 0.0
            if left_s < SOON_S:
                when = f"expires at {one.until}" if left_s > 0 else f"has expired at {one.until or 'an unknown time'}"
                remedy = f"renew {one.file}, as with hived certificates; it is read again by itself"
                found.append(Notice(f"the {one.use} certificate {when}", remedy))
        if known.history.wanted and not known.history.file:
            text = f"the history is kept in memory only: {known.history.wanted} cannot be used"
            found.append(Notice(text, "let hived write that file, or name another one by historyFile"))
        return found

    def _history(self) -> HistoryFile:
        where, size = self._store.where, 0
        if where:
            try:
                size = Path(where).stat().st_size
            except OSError:
                where = ""
        return HistoryFile(file=where, wanted=self._files.history, bytes=size)

    def _version_of_kubernetes(self) -> str:
        """As the API server said it last, "" if it has not. It is asked beside, and at first waited for a moment."""
        with self._lock:
            is_due = time.monotonic() >= self._asked_at + ASKED_S or not self._kubernetes
            if self._asking is not None or not is_due:
                return self._kubernetes
            self._asked_at = time.monotonic()
            asking = self._asking = threading.Thread(target=self._ask_version, name="version", daemon=True)
        asking.start()
        if not self._kubernetes:
            asking.join(FIRST_ANSWER_S)
        return self._kubernetes

    def _ask_version(self) -> None:
        found = ""
        try:
            found = self._ask_kubernetes()
        except HivedError:
            pass
        finally:
            with self._lock:  # the version of an API server that is away is the one it had
                self._kubernetes, self._asking = found or self._kubernetes, None


def _mending(nodes: Iterable[BadNode]) -> str:
    """The remedy of each node by its trouble."""
    cordoned, gone, broken = list[str](), list[str](), list[str]()
    for each in nodes:
        (cordoned if each.reason.startswith(CORDONED) else gone if each.reason == GONE else broken).append(each.node)
    ways = [
        f"kubectl uncordon {_listed(cordoned)} once {'it is' if len(cordoned) == 1 else 'they are'} to be used again",
        f"add {_listed(gone)} to Kubernetes",
        f"repair {_listed(broken)}",
    ]
    return ", ".join(way for way, found in zip(ways, (cordoned, gone, broken), strict=True) if found)


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:3]) + (" and more" if len(nodes) > 3 else "")


def _bad_node(view: View, node: str) -> BadNode:
    reason, since_s = view.snapshot.bad.get(node, ("lost devices", None))
    return BadNode(node, reason, rfc3339(since_s))


def _certificate(use: CertificateUse, file: Path) -> ServedCertificate:
    """A certificate by its file; until "" if that cannot be read."""
    from hived_deploy.certificates import expiry  # noqa: PLC0415  # takes 30 ms, and only this answer needs it

    try:
        until = expiry(file.read_bytes())
    except (OSError, ValueError):
        return ServedCertificate(use, str(file), "")
    return ServedCertificate(use, str(file), until.strftime("%Y-%m-%dT%H:%M:%SZ"))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).astimezone(UTC).timestamp()
