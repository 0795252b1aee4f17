"""The record of a run: every event that reached the core, as a scenario that `hived replay` repeats.

A run is a chain of files `RUN-0001.jsonl`, `RUN-0002.jsonl`, ... beside a copy of its configuration, `RUN.yaml`. Only
the first has the header, and a `new` line begins each term of leadership; the parts joined in order are one scenario. A
part cannot stand alone, because free lists and reservations depend on the whole history. Pods are named by uid and
their specs are written out with all defaults, so that a replay sees exactly the core's input.

While another configuration is taken up without a restart, the operations that build its state are written beside the
run, as a `Draft`. The draft becomes the next part when that state replaces the old one, with a copy of its
configuration, `RUN.2.yaml` and so on.

A line is on its way to the disk before the next event is handled, so a record ends with the event that broke something.
A record that cannot be written is given up, with an error in the log: recording never stops scheduling.

A trace is made of the last days of a folder of records. Pods that wait are asked about again and again, which is most
of a record. For the trace each pod is asked about once, and once more when it is placed; its lines cannot be repeated
as a scenario.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from hived.values.errors import UserError
from hived.values.events import (
    Event,
    GangChanged,
    GroupReserved,
    GroupSplit,
    GroupsUpgraded,
    LeavesLost,
    NodeHealthChanged,
    PodAllocated,
    PodDeleted,
    PodProgressed,
    ScheduleRequested,
)
from hived.values.specs import NO_TIMES, BindInfo, PodRequest
from hived_extender.jobs.annotations import BIND_INFO, spec_fields
from hived_extender.jobs.bind_info import bind_annotations
from hived_extender.machine.recording import operations as ops
from hived_extender.machine.recording.operations import Operation
from hived_extender.machine.recording.recorded_offer import to_text

log = logging.getLogger(__name__)

PART_SIZE = 64 * 1024 * 1024

_encoder = msgspec.json.Encoder()


class Operations:
    """Writes down the events of a core, one line for each operation."""

    _config: str
    job_of: Callable[[str], str] = staticmethod(lambda uid: "")
    """The name of the job of a pod by its uid, as people know it; "" if it is not known."""

    def _write(self, operation: Operation | ops.Header) -> None:
        raise NotImplementedError

    def began(self) -> None:
        """The core starts anew from an empty state, as it does whenever a replica begins to lead."""
        self._write(ops.New(config=self._config))

    def asked(self, event: ScheduleRequested, node_names: Sequence[str], *, commit: bool) -> None:
        """A pod was to be placed; `commit` says that a bind was carried out, `node_names` are those of its offer."""
        pod, offer, now_s, own = event.pod, event.offer, event.now_s, event.own
        text = msgspec.UNSET if offer is None else to_text(offer, node_names)
        self._write(
            ops.Schedule(
                pod=pod.uid, spec=_spec(pod), phase=event.phase.value, suggested="all", commit=commit, offer=text,
                now=msgspec.UNSET if now_s is None else now_s, own=msgspec.UNSET if own is None else own.tolist(),
                job=self._job(pod),
            )
        )  # fmt: skip

    def told(
        self, fact: Event, now_s: float | None = None, *, was_bound: bool = True, infos: Iterable[BindInfo] = ()
    ) -> None:
        """A fact reaches the core.

        A pod is gone at `now_s`, in seconds since 1970, or it waits again as it `was_bound` to no node. Of pods that
        are bound, groups are upgraded to the places `infos`.
        """
        match fact:
            case NodeHealthChanged(node, is_healthy):
                self._write(ops.UpdateNode(node=node, old=not is_healthy, new=is_healthy))
            case LeavesLost(node, leaf_type, count, known):
                self._write(ops.LoseLeaves(node=node, leaf_type=leaf_type, count=count, known=[*known]))
            case PodAllocated(pod, info, _, times):
                place = {"node": info.node, "bind_info": _text(info)}
                self._write(ops.AddBound(pod=pod.uid, spec=_spec(pod), job=self._job(pod), **place))
                if times is not None and times != NO_TIMES:
                    self.told(PodProgressed(pod, times))
            case PodProgressed(pod, times):
                self._write(ops.Progress(pod=pod.uid, started=times.started_s, saved=times.saved_s))
            case GroupSplit(group, pods, slots):
                split = [ops.SplitPod(pod.uid, _spec(pod), self._job(pod)) for pod in pods]
                own_slots = [[*own] for own in slots] if slots else msgspec.UNSET
                self._write(ops.Split(group=group, pods=split, slots=own_slots))
            case GroupsUpgraded(pods, own):
                bound = [ops.BoundPod(pod.uid, _spec(pod), _text(info)) for pod, info in zip(pods, infos, strict=True)]
                self._write(ops.Upgrade(pods=bound, own=own.tolist()))
            case GangChanged(gang):
                limits = [ops.Limit([*limit.groups], limit.spare) for limit in gang.limits]
                self._write(ops.Gang(name=gang.name, groups=[*gang.groups], limits=limits))
            case GroupReserved(pods, info, may_be_free):
                waiting = [ops.NamedPod(pod.uid, _spec(pod)) for pod in pods]
                flag = True if may_be_free else msgspec.UNSET
                self._write(ops.Reserve(pods=waiting, node=info.node, bind_info=_text(info), may_be_free=flag))
            case PodDeleted(pod):
                now = msgspec.UNSET if now_s is None else now_s
                self._write(ops.Delete(pod=pod.uid, now=now, bound=msgspec.UNSET if was_bound else False))

    def _job(self, pod: PodRequest) -> str | msgspec.UnsetType:
        """The job of a pod; nothing where its affinity group is the job."""
        name = self.job_of(pod.uid)
        return name if name and name != pod.spec.group.name else msgspec.UNSET


def _text(info: BindInfo) -> str:
    return bind_annotations(info)[BIND_INFO]


def _spec(pod: PodRequest) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(spec_fields(pod.spec)))


class Draft(Operations):
    """The events of a coming configuration's core, in a file of its own until `Recorder.take_over`."""

    def __init__(self, path: Path | None, config: str, config_text: str) -> None:
        """Nothing is written where `path` is None. `config` is the future name of the configuration's copy."""
        self.path = path
        self.config_text = config_text
        self.is_broken = False
        self._config = config
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                self._file = path.open("wb", buffering=0)
            except OSError:
                self.is_broken = True

    def drop(self) -> None:
        """It is not needed: another configuration stays in force."""
        self.finish()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Everything is written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, operation: Operation | ops.Header) -> None:
        if self._file is not None and not self.is_broken:
            try:
                self._file.write(_encoder.encode(operation) + b"\n")
            except OSError:
                self.is_broken = True


class Recorder(Operations):
    """Writes one run. Not thread-safe: its owner calls it under the lock that orders the events."""

    def __init__(
        self,
        directory: Path,
        config_text: str,
        on_failure: Callable[[], None] = lambda: None,
        *,
        run: str = "",
        part_size: int = PART_SIZE,
    ) -> None:
        """Start a run in `directory`, made if need be; raises OSError if that fails.

        `on_failure` is called once, when a line could not be written; `run` names the run (default: the time in UTC);
        `part_size` in bytes.
        """
        self._directory = directory
        self._part_size = part_size
        self._on_failure = on_failure
        now = time.time()
        self.run = run or time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 1000):03d}Z"
        directory.mkdir(parents=True, exist_ok=True)
        self._config = f"{self.run}.yaml"
        self._config_count = 1
        (directory / self._config).write_text(config_text, encoding="utf-8")
        self._part = 0
        self._file: BinaryIO | None = self._next_part()
        self._write(ops.Header(name=self.run, config=self._config))

    @property
    def where(self) -> str:
        """The folder, a slash and the name of the run; "" once the record is given up or finished."""
        return "" if self._file is None else f"{self._directory.absolute()}/{self.run}"

    def close(self) -> None:
        """Finish the run."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def draft(self, config_text: str) -> Draft:
        """A record for the core of another configuration. A file that cannot be made ends the record when the draft is
        taken over.
        """
        path = None if self._file is None else self._directory / f"{self.run}.draft"
        draft = Draft(path, self._next_config(), config_text)
        draft.job_of = self.job_of
        return draft

    def take_over(self, draft: Draft) -> None:
        """The draft's core takes the place of ours: the record goes on with the draft."""
        draft.finish()
        self.configured(draft.config_text)
        if self._file is None or draft.path is None:
            return
        try:
            if draft.is_broken:
                raise OSError(f"{draft.path} could not be written")
            self._file.close()
            self._part += 1
            path = self._part_path()
            draft.path.rename(path)
            self._file = path.open("ab", buffering=0)
        except OSError:
            self._give_up()

    def configured(self, config_text: str) -> None:
        """Terms that begin from now on do so with this configuration."""
        if self._file is None:
            return
        name = self._next_config()
        try:
            (self._directory / name).write_text(config_text, encoding="utf-8")
        except OSError:
            self._give_up()
        self._config, self._config_count = name, self._config_count + 1

    def _next_config(self) -> str:
        return f"{self.run}.{self._config_count + 1}.yaml"

    def _part_path(self) -> Path:
        return self._directory / f"{self.run}-{self._part:04d}.jsonl"

    def _next_part(self) -> BinaryIO:
        self._part += 1
        return self._part_path().open("xb", buffering=0)

    def _write(self, operation: Operation | ops.Header) -> None:
        if self._file is None:
            return
        try:
            if self._file.tell() >= self._part_size:
                self._file.close()
                self._file = self._next_part()
            self._file.write(_encoder.encode(operation) + b"\n")
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        log.exception("the record of this run ends here: it cannot be written")
        self.close()
        self._on_failure()


MOST_BYTES = 1024 * 1024 * 1024
"""Of the files that are read for one answer."""

PAUSE = 32
"""Lines after which others are served."""

TOLD = ("progress", "delete", "new", "split")
"""Operations that are told as they are; `addBound` is told without its place."""


class TraceLine(msgspec.Struct, omit_defaults=True):
    """The keys of an operation that a trace needs; a question about a pod that is left out is a `time` alone."""

    op: str
    now: float | None = None
    pod: str = ""
    commit: bool = False
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    annotation: str | None = None
    job: str = ""
    started: float | None = None
    group: str = ""
    pods: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    bound: bool = True

    @property
    def text(self) -> str:
        """The scheduling spec of the pod."""
        return bytes(self.spec or b"").decode() if self.annotation is None else self.annotation


_decoder = msgspec.json.Decoder(TraceLine)


def recent_parts(folder: Path, since_s: float) -> list[Path]:
    """The files of all runs that were written to after `since_s` (seconds since 1970), oldest first.

    Raises UserError if there are none (404), if the folder cannot be read (503), or if they are too large (413).
    """
    try:
        parts = sorted(folder.glob("*-[0-9]*.jsonl"))
        about = {part: part.stat() for part in parts}
    except OSError as error:
        raise UserError(f"the record cannot be read: {error.strerror}", 503) from error
    recent = {_run(part) for part in parts if about[part].st_mtime >= since_s}
    found = [part for part in parts if _run(part) in recent]
    if not found:
        raise UserError("no record is that young: ask for more days", 404)
    size = sum(about[part].st_size for part in found)
    if size > MOST_BYTES:
        raise UserError(
            f"that record has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read: ask for fewer days",
            413,
        )
    return found


def _run(part: Path) -> str:
    return part.name.rpartition("-")[0]


def recent_lines(parts: list[Path]) -> Iterator[bytes]:
    """Their lines, as much as a trace needs of them; empty ones after some that were left out.

    A part that goes away meanwhile counts as empty, a line that is still being written as none. Lines of no known form
    are told as they are: the reader of the trace says where they are wrong.
    """
    seen: set[str] = set()
    quiet = 0
    time: float | None = None
    for part in parts:
        try:
            with part.open("rb") as lines:
                for line in lines:
                    told, time = _told(line, seen, time)
                    quiet = 0 if told else quiet + 1
                    if told or quiet % PAUSE == 0:
                        yield told
        except FileNotFoundError:
            continue
    yield _before(time)


def _told(line: bytes, seen: set[str], time: float | None) -> tuple[bytes, float | None]:
    """The text told of a line, and the time of lines before it of which nothing was told."""
    if not line.endswith(b"\n"):
        return b"", time
    try:
        known = _decoder.decode(line)
    except msgspec.MsgspecError:
        return line, None
    if known.op == "addBound":
        seen.add(known.pod)
        return _before(time) + _line(known), None
    if known.op == "schedule":
        if known.pod in seen and not known.commit:
            return b"", known.now if known.now is not None else time
        seen.add(known.pod)
        return _line(known), None
    if known.op not in TOLD:
        return b"", known.now if known.now is not None else time
    return _before(time) + line, None


def _before(time: float | None) -> bytes:
    return b"" if time is None else _line(TraceLine("time", time))


def _line(told: TraceLine) -> bytes:
    return _encoder.encode(told) + b"\n"
