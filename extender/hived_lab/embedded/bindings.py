"""Bindings beside the scheduler's loop, as kube-scheduler makes them: an extender may hold one back."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hived_extender.kube.logs import tell_failure
from hived_lab.embedded.extender_client import ExtenderClient, ExtenderError

MOST_AT_ONCE = 256


class Bindings:
    """Each on a thread, over a connection that no other thread uses at that time."""

    def __init__(self, connect: Callable[[], ExtenderClient]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "embedded-bind")
        self._lock = threading.Lock()
        self._clients: list[ExtenderClient] = []
        self._idle: list[ExtenderClient] = []
        self._is_over = False

    def begin(self, bind: Callable[[ExtenderClient], None]) -> None:
        """Have `bind` called on a thread. Raises ExtenderError if no more bindings are wanted."""
        with self._lock:
            if self._is_over:
                raise ExtenderError("no more bindings are wanted")
            self._threads.submit(self._run, bind).add_done_callback(tell_failure)

    def abort(self) -> None:
        """End all calls under way, which fail, and wait for their threads."""
        with self._lock:
            self._is_over = True
            clients = list(self._clients)
        for client in clients:
            client.abort()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self, bind: Callable[[ExtenderClient], None]) -> None:
        with self._lock:
            if self._is_over:
                return
            if self._idle:
                client = self._idle.pop()
            else:
                client = self._connect()
                self._clients.append(client)
        try:
            bind(client)
        finally:
            with self._lock:
                self._idle.append(client)
