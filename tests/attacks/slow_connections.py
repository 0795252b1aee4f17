"""600 connections that are silent, or send headers or bodies a byte at a time; in the clear, over TLS, with few files.

Honest calls go on, `/healthz` included; every slow connection is gone when its time is up. Where there are too
many, the log says so. The attackers have an address of their own, as in a cluster.
"""

import socket
import ssl
import time
from contextlib import suppress

from tests.attacks.attack import Outcome, Run
from tests.attacks.target import Probe, Target

FULL_COUNT = 600
FULL_S = 30.0
LIMITS_S = 14.0
"""The limits of handshakes, headers and bodies, and a moment."""

ADDRESS = "127.0.0.2"
FEW_FILES = 256
CROWDED_BEYOND = 100
"""Connections that a port cannot all have with so few files; the log tells of those that make room for others."""

LOGGED = "connections dropped"
HEADERS = b"POST /v1/extender/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
SENT = {"silent": b"", "headers": HEADERS, "body": HEADERS + b"\r\n{"}


def run(run: Run) -> Outcome:
    """Three services, one after the other."""
    outcome = Outcome()
    for name, is_secured, files in (("clear", False, 0), ("TLS", True, 0), ("few files", False, FEW_FILES)):
        run.say(f"  {name}")
        with Target(run, name.replace(" ", "-"), is_secured=is_secured, file_limit=files) as target:
            bodies = target.honest_bodies(20)
            with target.probing(bodies) as probe:
                alone = probe.over(run.seconds(5))
                _attack(run, target, outcome, probe, name)
                beside = probe.since()
            if outcome.beside is None or beside.p99 > outcome.beside.p99:
                outcome.alone, outcome.beside = alone, beside
            outcome.notes.append(f"{name}: p99 {alone.p99:.1f} ms alone, {beside.p99:.1f} ms beside")
            for latency in (alone, beside):
                outcome.expect(
                    not latency.failed, f"{name}: {latency.failed} honest calls failed: {latency.first_failure}"
                )
            if why := target.fault():
                outcome.fault(f"{name}: {why}")
            is_crowded = bool(files) and run.count(FULL_COUNT) > CROWDED_BEYOND
            outcome.expect(not is_crowded or LOGGED in target.service.log.read_text(), f"{name}: the log is silent")
    return outcome


class _Slow:
    """One slow connection."""

    def __init__(self, kind: str, connection: socket.socket) -> None:
        self.kind, self.socket = kind, connection
        self.is_gone = False

    def trickle(self) -> None:
        """Send a byte; the service may have ended the connection."""
        if self.kind == "silent" or self.is_gone:
            return
        try:
            self.socket.send(b"X" if self.kind == "headers" else b" ")
        except (ssl.SSLWantWriteError, BlockingIOError):
            pass
        except OSError:
            self.is_gone = True

    def look(self) -> None:
        """Has the service ended it? An answer may come before the end."""
        while not self.is_gone:
            try:
                self.is_gone = not self.socket.recv(65_536)
            except (ssl.SSLWantReadError, BlockingIOError):
                return
            except OSError:
                self.is_gone = True


def _attack(run: Run, target: Target, outcome: Outcome, probe: Probe, name: str) -> None:
    probe.since()
    slow = [each for number in range(run.count(FULL_COUNT, least=30)) if (each := _opened(target, number, outcome))]
    until = time.monotonic() + (FULL_S if run.is_timed else LIMITS_S)
    while time.monotonic() < until and not all(each.is_gone for each in slow):
        for each in slow:
            each.trickle()
            each.look()
        time.sleep(1.0)
    left = [each.kind for each in slow if not each.is_gone]
    outcome.refused += len(slow) - len(left)
    outcome.expect(not left, f"{name}: {len(left)} of {len(slow)} slow connections are still there: {set(left)}")
    for each in slow:
        each.socket.close()


def _opened(target: Target, number: int, outcome: Outcome) -> _Slow | None:
    kind = tuple(SENT)[number % len(SENT)]
    outcome.tried += 1
    connection: socket.socket | None = None
    try:
        connection = socket.create_connection(("127.0.0.1", target.port), timeout=10, source_address=(ADDRESS, 0))
        if target.is_secured and kind != "silent":
            client = "scheduler" if kind == "body" else ""  # others cannot even begin to send one
            connection = target.files.context(client).wrap_socket(connection, server_hostname="localhost")
        connection.sendall(SENT[kind])
        connection.setblocking(False)
    except OSError:  # dropped at once, as there are too many
        outcome.refused += 1
        with suppress(OSError):
            if connection is not None:
                connection.close()
        return None
    return _Slow(kind, connection)
