"""The paths of the past: series of samples between two moments, and the record of the last days for a simulation."""

import time
from pathlib import Path
from urllib.parse import parse_qs

import msgspec

from hived.values.errors import UserError
from hived_extender.http.answers import Answer, Question
from hived_extender.http.dumps import stream
from hived_extender.http.routing import Backend
from hived_extender.insight.history import LATEST_S
from hived_extender.jobs.progress import read_time
from hived_extender.jobs.wire import encode
from hived_extender.kube.clocks import wall_s
from hived_extender.machine.recording.record import recent_lines, recent_parts

DAY_S = 86_400.0
MOST_FIELDS = 32
LINES = "application/x-ndjson"
LATEST_SINCE_S = 2.0**40
FIELDS = ("from", "to", "series", "step", "vc")


class Span(msgspec.Struct, frozen=True):
    """A question about the past: moments in seconds since 1970, steps in seconds; no `metrics` stand for all."""

    first_s: float
    last_s: float
    step: int | None = None
    metrics: tuple[str, ...] = ()
    vc: str | None = None


def history(backend: Backend, question: Question) -> Answer:
    """Series of the last day, or `?from=` and `to=`: use, free cells, waits by cause, starts and preemptions."""
    span = read_span(question.query, wall_s())
    found = backend.history.query(span.first_s, span.last_s, span.step, span.metrics, span.vc)
    return Answer(encode(found))


def read_span(query: str, now_s: float) -> Span:
    """A query: `from` and `to` are seconds since 1970, RFC 3339, or -SECONDS before now; a day until now by default.

    `series` may have several metrics with commas, and come several times. Raises UserError (400).
    """
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise UserError(f"the query has more than {MOST_FIELDS} fields") from None
    if unknown := sorted(given.keys() - set(FIELDS)):
        raise UserError(
            f"there is no field {unknown[0][:40]!r} in a query of the history; there are {', '.join(FIELDS)}"
        )
    last = {name: texts[-1] for name, texts in given.items()}
    last_s = _moment("to", last.get("to", ""), now_s, now_s)
    first_s = _moment("from", last.get("from", ""), last_s - DAY_S, now_s)
    if first_s > last_s:
        raise UserError(f"from={last.get('from', '')!r} is later than to={last.get('to', 'now')!r}")
    step = last.get("step", "")
    if step and not (step.isascii() and step.isdecimal() and len(step) < 8):
        raise UserError(f"step={step[:40]!r}: expected seconds, such as 300")
    metrics = [name for text in given.get("series", []) for name in text.split(",") if name]
    return Span(first_s, last_s, int(step) if step else None, tuple(metrics), last.get("vc"))


def _moment(name: str, text: str, default_s: float, now_s: float) -> float:
    if not text:
        return default_s
    try:
        moment = float(text)
        moment += now_s if moment < 0 else 0.0
    except ValueError:
        try:
            moment = read_time(text)
        except UserError:
            moment = -1.0
    if 0 <= moment < LATEST_S:
        return moment
    raise UserError(
        f"{name}={text[:40]!r}: expected seconds since 1970, a time such as 2026-11-23T15:04:05Z, or -3600, an hour ago"
    )


def record(backend: Backend, question: Question) -> Answer:
    """Requests since `?since=` (seconds since 1970) in the record of this replica, as lines of JSON."""
    service = backend.service
    if not service.is_ready:
        raise UserError(service.standing or "not ready", 503)
    folder, _, run = service.record.rpartition("/")
    if not run:
        raise UserError("this service keeps no record: run it with hived serve --record DIR", 404)
    backend.refuse_strangers(question, "the record")
    return stream(question, recent_lines(recent_parts(Path(folder), _since(question.query))), LINES)


def _since(query: str) -> float:
    """Raises UserError (400)."""
    given = "0"
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_FIELDS).get("since", ["0"])[-1]
        since_s = float(given)
    except ValueError:
        since_s = -1.0
    if not 0 <= since_s <= LATEST_SINCE_S:
        raise UserError(f"since={given[:40]!r}: expected seconds since 1970, such as {time.time() - 86400:.0f}", 400)
    return since_s
