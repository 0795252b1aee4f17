"""The effects that other rules of decisions would have had on a recorded run.

The past of a cluster in numbers: series of samples, as the service keeps them and pages and commands show them.
"""

from typing import Literal

import msgspec

RulesName = Literal["hived", 2]


class DecisionCount(msgspec.Struct, frozen=True):
    """So many questions were answered with `old` by the recorded rules, and with `new` by the others.

    Answers are "bind", "preempt", "wait" and "refused". "bind elsewhere" and "preempt others" are the same kind of
    answer with other cells or other victims.
    """

    old: str
    new: str
    count: int


class OtherDecision(msgspec.Struct, frozen=True, rename="camel"):
    """One question that gets another answer: its line in the record, the pod, the job in `group`, and both answers.

    `old_detail` and `new_detail` say which devices, which victims or what reason. `when` is the time of the question
    (RFC 3339, UTC), "" in a record without times.
    """

    place: str
    pod: str
    group: str
    vc: str
    old: str
    new: str
    old_detail: str
    new_detail: str
    when: str = ""


class MovedStart(msgspec.Struct, frozen=True, rename="camel"):
    """A job, named in `group`, that starts at another line of the record; "" for never.

    `old_when` and `new_when` are times as in `OtherDecision`.
    """

    group: str
    vc: str
    old_place: str
    new_place: str
    old_when: str = ""
    new_when: str = ""


class RecordedPast(msgspec.Struct, frozen=True, rename="camel"):
    """A recorded run under its own rules and under others.

    Attributes
    ----------
    run : the name of the run
    old_rules, new_rules : the recorded rules at its end, and the others
    operations, questions : how many lines were repeated, and how many of them asked for a decision in both worlds
    decisions : questions with different answers, by kind
    first : the first of them, one for each pod, and those that are only "bind elsewhere" last
    earlier, later : jobs that start earlier, or later or never
    evicted, spared : jobs that have to leave under the new rules only, or under the old ones only
    unfollowed : lines of the record that the other world could not follow
    """

    run: str
    old_rules: RulesName
    new_rules: RulesName
    operations: int
    questions: int
    decisions: list[DecisionCount] = []
    first: list[OtherDecision] = []
    earlier: list[MovedStart] = []
    later: list[MovedStart] = []
    evicted: list[str] = []
    spared: list[str] = []
    unfollowed: int = 0

    @property
    def is_equal(self) -> bool:
        """True if every decision would have been the same."""
        return not (self.decisions or self.earlier or self.later or self.evicted or self.spared or self.unfollowed)


MetricName = Literal[
    "leaf_cells",
    "leaf_cells_bad",
    "leaf_cells_promised",
    "leaf_cells_used",
    "leaf_cells_short",
    "leaf_cells_borrowed",
    "free_cells",
    "waiting_pods",
    "queued_pods",
    "started_pods",
    "start_delay_seconds",
    "preempted_pods",
    "preempted_gpu_hours",
]
"""All that is sampled; docs/history.md says what each is."""


class Series(msgspec.Struct, frozen=True):
    """Numbers of one metric, one for each entry of `History.times`; null where nothing was sampled.

    `labels` are those of the metric: `vc`, `cause` of waiting pods, `chain` and `level` of free cells.
    """

    metric: MetricName
    labels: dict[str, str]
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Series between two moments.

    `times` are the beginnings of equal intervals of `step` seconds, in seconds since 1970, ascending. A value is the
    mean of an interval; of pods that started or were preempted, of their delays and GPU-hours it is the sum.
    `is_kept` is false if all is in memory only, and begins anew with the process.
    """

    step: int
    times: list[int]
    series: list[Series] = []
    is_kept: bool = True
