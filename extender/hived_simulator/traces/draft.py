"""A trace in the making: what a user asks of its reader, jobs, and notes on rows left out, guessed or repaired."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import msgspec

from hived.values.errors import UserError
from hived_config.words import counted
from hived_simulator.traces.fields import FIRST_DATE, MAX_LEAVES, MAX_SECONDS, MAX_TIME, Unusable, zone
from hived_simulator.traces.jobs import Job, Trace


class Options(msgspec.Struct, frozen=True):
    """Options for what a file does not say.

    node_leaf_cells : leaf cells of a node, which shape gangs where a format gives only a number of GPUs
    time_zone : IANA name of the zone of times that name none
    tenant_column : the column or key that names the tenant, such as user; "" for the one that is usual in the format
    is_as_placed : shape gangs as the trace has placed them, where it tells that, and not as densely as they go
    steps_per_s : steps that a job makes in a second, where a trace tells steps and no times; 0 for a guess
    throughputs : a file of such rates by type of job, as gavel has them
    columns : PROPERTY=COLUMN texts, which say what is in which column of any table
    devices : resources of Kubernetes that are leaf cells
    """

    node_leaf_cells: int = 8
    time_zone: str = "UTC"
    tenant_column: str = ""
    is_as_placed: bool = False
    steps_per_s: float = 0.0
    throughputs: str = ""
    columns: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")


MAX_JOBS = 5_000_000
MAX_NAME = 200
"""Characters of a name; longer ones are cut."""
REPORTED = 8192
"""Rows between two reports of progress."""
SHOWN = 80
"""Characters of a bad field that a message shows."""

Row = TypeVar("Row")


class Draft:
    """Collects jobs with absolute times. `line` is the place of the present row, for messages."""

    def __init__(self, source: str, options: Options, progress: Callable[[int], None] = lambda _: None) -> None:
        """`progress` is told the number of rows from time to time."""
        self.source, self.options, self.progress = source, options, progress
        self.zone = zone(options.time_zone)
        self.line = 0
        self.unit = "line"
        self._jobs: list[Job] = []
        self._left_out: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._remarks: Counter[str] = Counter()
        self._notes: dict[str, None] = {}

    def tenant_key(self, usual: str, known: Collection[str]) -> str:
        """The key that names the tenant: the user's choice, or the usual one. Raises UserError for an unknown one."""
        key = self.options.tenant_column or usual
        if key not in known:
            raise UserError(
                f"{self.source}: tenants cannot be taken from {shown(key)}; expected {' or '.join(filter(None, known))}"
            )
        return key

    def note_shapes(self) -> None:
        """Say how gangs are shaped of which only the number of GPUs is known."""
        cells = self.options.node_leaf_cells
        self.note(f"shapes of gangs are not given: nodes of {counted(cells, 'GPU')}, the remainder as one pod")

    def note_zone(self) -> None:
        """Say of which zone times are that name none."""
        self.note(f"times have no zone: read as {self.options.time_zone}")

    def take(self, rows: Iterable[Row], to_job: Callable[[Row], Job | None]) -> None:
        """Add the job of each row, with `submitted_s` in seconds since 1970 or any other moment.

        A row whose reader raises Unusable is counted. Raises UserError if there are too many.
        """
        for number, row in enumerate(rows, 1):
            if number % REPORTED == 0:
                self.progress(number)
            try:
                job = to_job(row)
                if job is not None:
                    self.add(job)
            except Unusable as why:
                self.leave_out(why)

    def add(self, job: Job) -> None:
        """Take a job. Raises Unusable if no trace may have it, UserError if there are too many."""
        leaves = job.leaf_count
        if leaves <= 0:
            raise Unusable("asks for no GPU")
        if leaves > MAX_LEAVES:
            raise Unusable(f"asks for over {MAX_LEAVES} GPUs", "GPUs", leaves)
        if not 0 < job.duration_s <= MAX_SECONDS:
            raise Unusable("never ran" if job.duration_s == 0 else "duration is out of bounds", "", job.duration_s)
        if not abs(job.submitted_s) <= MAX_TIME or not abs(job.started_s or 0.0) <= MAX_TIME:
            raise Unusable("time is out of bounds", "", job.submitted_s)
        if len(self._jobs) >= MAX_JOBS:
            raise UserError(f"{self.source}:{self.line}: has more than {MAX_JOBS} jobs; read a part of it")
        self._jobs.append(job)

    def leave_out(self, why: Unusable) -> None:
        """Count a row that is no job; the first of each reason is shown."""
        self._left_out[why.reason] += 1
        if why.reason not in self._examples:
            found = f", found {shown(why.found)}" if why.field else ""
            self._examples[why.reason] = f"{self.unit} {self.line}{found}"

    def remark(self, text: str, times: int = 1) -> None:
        """Count something that a reader guessed or repaired."""
        self._remarks[text] += times

    def note(self, text: str) -> None:
        """Say something once."""
        self._notes[text] = None

    def finish(self, name: str) -> Trace:
        """The trace of all jobs, which begins with its first submission.

        Times before 1973 tell no date: they count from another moment than 1970. Raises UserError if no row could be
        used.
        """
        if not self._jobs:
            raise UserError(self._nothing())
        start = min(job.submitted_s for job in self._jobs)
        jobs = [self._relative(job, start) for job in self._jobs]
        jobs.sort(key=lambda job: (job.submitted_s, job.name))
        jobs = list(self._with_own_names(jobs))
        jobs.sort(key=lambda job: (job.submitted_s, job.name))
        return Trace(name, tuple(jobs), start if start >= FIRST_DATE else None, self._all_notes())

    def _relative(self, job: Job, start: float) -> Job:
        started = job.started_s
        return msgspec.structs.replace(
            job,
            name=self._clean(job.name),
            tenant=self._clean(job.tenant),
            user=self._clean(job.user),
            submitted_s=round(job.submitted_s - start, 6),
            started_s=None if started is None else round(started - start, 6),
        )

    def _clean(self, text: str) -> str:
        """A name that can be printed. Most can: that is asked first."""
        if len(text) <= MAX_NAME and text.isprintable():
            return text
        self.remark("names with control characters or of more than 200 characters, replaced or cut")
        return "".join(each if each.isprintable() else "\ufffd" for each in text[:MAX_NAME])

    def _with_own_names(self, jobs: list[Job]) -> Iterable[Job]:
        """The jobs, later ones of the same name with a number behind it."""
        taken = {job.name for job in jobs}
        if len(taken) == len(jobs):
            yield from jobs
            return
        seen: Counter[str] = Counter()
        for job in jobs:
            seen[job.name] += 1
            if seen[job.name] == 1:
                yield job
                continue
            number = seen[job.name]
            while (name := f"{job.name}#{number}") in taken:
                number += 1
            taken.add(name)
            seen[job.name] = number
            self.remark("jobs with the name of an earlier one, which get a number behind it")
            yield msgspec.structs.replace(job, name=name)

    def _all_notes(self) -> tuple[str, ...]:
        left_out = [
            f"left out, {reason}: {count} (first: {self._examples[reason]})"
            for reason, count in sorted(self._left_out.items(), key=lambda each: (-each[1], each[0]))
        ]
        remarks = [f"{text}: {count}" for text, count in sorted(self._remarks.items())]
        return (*self._notes, *left_out, *remarks)

    def _nothing(self) -> str:
        if not self._left_out:
            return f"{self.source}: has no job; is it complete?"
        reason, count = self._left_out.most_common(1)[0]
        return f"{self.source}: no row can be used; of {count}: {reason} (first: {self._examples[reason]})"


def shown(found: object) -> str:
    """A value from a file, short and printable, for messages."""
    text = repr(found)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
