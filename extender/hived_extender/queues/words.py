"""The reasons of queues in a sentence, and the events that Kube Queue's users know."""

from collections.abc import Callable

from hived_extender.queues.reasons import (
    Held,
    Impossible,
    Leaving,
    MakingRoom,
    NoHardware,
    NotItsTurn,
    NotPromised,
    OverQuota,
    OverUserLimit,
    Reason,
    Running,
)

ENQUEUED, DEQUEUED, EVICTED, INSUFFICIENT = "Enqueued", "Dequeued", "Preempted", "InsufficientQuota"
"""Reasons of events about jobs."""


def sentence(reason: Reason | None, name: Callable[[str], str]) -> str:
    """Why a job waits. `name` gives the name of a job by its key."""
    match reason:
        case None:
            return ""
        case Running(is_borrowed=True):
            return "runs ahead of its turn, on cells that may be taken back"
        case Running():
            return "runs on cells of its own virtual cluster"
        case Leaving(winner=winner):
            return f"its cells go to {name(winner)}" if winner else "it has lost its cells"
        case Held():
            return "is held: hived release, or active: true in its QueueUnit, lets it take its turn"
        case OverUserLimit(user=user, limit=limit, waits=True):
            return f"{user} has {limit} jobs that wait before it, as many as the queue looks at"
        case OverUserLimit(user=user, limit=limit):
            return f"{user} runs {limit} jobs, as many as the queue allows"
        case OverQuota(text=text) | Impossible(text=text):
            return text
        case NotPromised(queue=queue):
            return f"is above the guarantee of queue {queue}, which may not borrow"
        case MakingRoom(victims=victims):
            count = len(victims)
            return f"is due, and starts when {name(victims[0])}{f' and {count - 1} more' if count > 1 else ''} has left"
        case NoHardware(text=text):
            return f"is due, and no cells can be had: {text}" if text else "is due, and its cells are being prepared"
        case NotItsTurn():
            return _turn(reason)
    raise AssertionError(reason)


def _turn(reason: NotItsTurn) -> str:
    if reason.is_first or not reason.before:
        text = "is first, and the cells of its virtual cluster are in use"
    else:
        text = f"{reason.before} job{'s' * (reason.before != 1)} before it"
    if reason.is_blocked:
        text += "; nobody goes past the first"
    if reason.borrowing:
        text += f"; it cannot borrow either: {reason.borrowing}"
    return text
