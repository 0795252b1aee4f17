"""Every key of each dialect, and what becomes of it: read, ignored by design, or refused.

A key is refused where its value *requires* something that is not built. The pod waits then, with an event that names
the key: a placement other than the required one would be worse than none. A key that only prefers is ignored.
Each module of a dialect has its part as `VOCABULARY`.
"""

from collections.abc import Callable
from enum import Enum

import msgspec

from hived_extender.jobs.wire import Pod

SHOWN_LENGTH = 100
"""Of a value in a message."""

LABELS, ANNOTATIONS, EITHER = "label", "annotation", "label, annotation"


class Use(Enum):
    """What becomes of a key."""

    READ = "read"
    IGNORED = "ignored"
    REFUSED = "refused"


class Key(msgspec.Struct, frozen=True):
    """A key of pods or of objects that describe their gangs.

    `place` says where it stands: a label, an annotation, or a field of an object. `note` is why it is ignored, or what
    it requires, after "it requires". `is_required` has the value, the pod, and whether the pod is in a gang.
    """

    name: str
    place: str
    use: Use
    note: str = ""
    is_required: Callable[[str, Pod, bool], bool] | None = None

    def requires(self, value: str, pod: Pod, *, has_gang: bool) -> bool:
        """Must the pod wait for the value of this key, which nobody understands?"""
        if self.use is not Use.REFUSED or not value:
            return False
        return self.is_required is None or self.is_required(value, pod, has_gang)

    def refusal(self, place: str, value: str) -> str:
        """Why a pod waits that has this value there."""
        shown = value if len(value) <= SHOWN_LENGTH else f"{value[:SHOWN_LENGTH]}..."
        return (
            f"{place}{self.name} is {shown!r}: it requires {self.note}, which hived cannot do; "
            "the pod waits until it is removed"
        )


def reads(place: str, *names: str) -> tuple[Key, ...]:
    """Keys that a dialect reads."""
    return tuple(Key(name, place, Use.READ) for name in names)


def ignores(place: str, note: str, *names: str) -> tuple[Key, ...]:
    """Keys that are ignored by design, as `note` says."""
    return tuple(Key(name, place, Use.IGNORED, note) for name in names)


def refuses(
    place: str, note: str, *names: str, when: Callable[[str, Pod, bool], bool] | None = None
) -> tuple[Key, ...]:
    """Keys that require what is not built: always, or where `when` says so of value, pod, and its being in a gang."""
    return tuple(Key(name, place, Use.REFUSED, note, when) for name in names)


def says(*texts: str) -> Callable[[str, Pod, bool], bool]:
    """A value with one of these texts in it."""

    def is_said(value: str, _pod: Pod, _has_gang: bool) -> bool:
        return any(text in value for text in texts)

    return is_said


def without_gang(_value: str, _pod: Pod, has_gang: bool) -> bool:
    """A pod whose gang no other dialect names."""
    return not has_gang
