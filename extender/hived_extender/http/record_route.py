"""The path of the record: what the scheduler was asked for in the last days, for a simulation."""

import time
from pathlib import Path
from urllib.parse import parse_qs

from hived.values.errors import UserError
from hived_extender.http.answers import Answer, Question
from hived_extender.http.dumps import stream
from hived_extender.http.routing import Backend
from hived_extender.recording.recent import recent_lines, recent_parts

LINES = "application/x-ndjson"
LATEST_S = 2.0**40
MOST_FIELDS = 8


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
    if not 0 <= since_s <= LATEST_S:
        raise UserError(f"since={given[:40]!r}: expected seconds since 1970, such as {time.time() - 86400:.0f}", 400)
    return since_s
