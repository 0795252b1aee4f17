"""The effects that other rules of decisions would have had on a recorded run."""

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
    """One question that gets another answer: its line in the record, the pod, and both answers.

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
    """A group that starts at another line of the record; "" for never.

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
    earlier, later : groups that start earlier, or later or never
    evicted, spared : groups that have to leave under the new rules only, or under the old ones only
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
