"""The Flask application, made when the first request needs it.

Filter, preempt, bind and health checks are answered in front of it. Importing Flask takes a tenth of the CPU of a
start, and 5 MB. A replica saves both until somebody reads its metrics or its status.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hived_extender.defrag.desk import DefragDesk
from hived_extender.http.access import Gate
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.gated_app import GATE, gate_of
from hived_extender.insight.answering import Answering
from hived_extender.insight.history import HistoryRings
from hived_extender.queues.answering import QueueAnswers
from hived_extender.service.service import Service

if TYPE_CHECKING:
    from flask import Flask


class LateApp:
    """As `create_app` makes it, from the same arguments, but only once it is called. Thread-safe."""

    def __init__(
        self,
        service: Service,
        gate: Gate | None = None,
        config_pushes: ConfigPushes | None = None,
        defrag: DefragDesk | None = None,
        history: HistoryRings | None = None,
        insight: Answering | None = None,
        queues: QueueAnswers | None = None,
    ) -> None:
        self.extensions: dict[str, Any] = {GATE: gate or Gate()}
        self._service = service
        self._config_pushes = config_pushes
        self._defrag = defrag
        self._history, self._insight, self._queues = history, insight, queues
        self._lock = threading.Lock()
        self._app: Flask | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        return self._made()(environ, start_response)

    def _made(self) -> "Flask":
        with self._lock:
            if self._app is None:
                from hived_extender.http.app import create_app  # noqa: PLC0415  # imports Flask, see above

                self._app = create_app(
                    self._service,
                    gate_of(self),
                    self._config_pushes,
                    self._defrag,
                    self._history,
                    self._insight,
                    self._queues,
                )
            return self._app
