"""Reads a configuration that was sent, in a process of its own with limits on CPU time and memory.

A text may be made to exhaust the machine. Reading it beside the service would at best take the interpreter's lock from
calls of kube-scheduler. The process is this module; it is given a text, and gives back a configuration or mistakes.
"""

import io
import os
import pickle
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from hived.values.errors import UserError
from hived_config.document import ConfigError, Mistake, gc_paused
from hived_config.loader import Configuration, load_text

MOST_NODES = 150_000
"""Of YAML. 16,384 computers in racks and pools, each named once, are 55,255 in 0.65 MB of text; as many as fill 1 MiB
are 90,000.
"""

CPU_S = 10
"""The configuration of 16,384 nodes takes half a second; a text of 1 MiB that takes the longest, 1.5 s."""

WALL_S = 60.0
MEMORY = 400 * 2**20
"""Bytes of address space; the interpreter takes 40 MiB, the configuration of 16,384 nodes 50 MiB more."""

NICENESS = 10
LOADABLE = frozenset(("hived", "hived_config"))

_one_at_a_time = threading.Lock()
_latest: dict[tuple[str, str], Configuration] = {}
"""The text that was read last: who has planned it, pushes it next."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but values of our own: its input comes from a process that has read an untrusted text."""

    def find_class(self, module: str, name: str) -> Any:
        """Called for every class. Raises UnpicklingError."""
        if module.split(".", maxsplit=1)[0] in LOADABLE or (module, name) == ("builtins", "frozenset"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a configuration")


def read_apart(text: str, file: str, *, cpu_s: int = CPU_S, memory: int = MEMORY) -> Configuration:
    """As `load_text`, one at a time; the text that was read last is not read again.

    Raises UserError (503) if no process can be had.
    """
    with _one_at_a_time:
        if (known := _latest.get((text, file))) is not None:
            return known
        output = _run(pickle.dumps((text, file, cpu_s, memory)))
        if not output:
            found = f"a text that takes more than {cpu_s} s or {memory >> 20} MiB to read"
            raise ConfigError([Mistake(file, 0, "", found, "a smaller configuration")])
    with gc_paused():
        result: Configuration | tuple[Mistake, ...] = _Unpickler(io.BytesIO(output)).load()
    if isinstance(result, Configuration):
        with _one_at_a_time:
            _latest.clear()
            _latest[text, file] = result
        return result
    raise ConfigError(result)


def _run(question: bytes) -> bytes:
    """The answer of the process, nothing if it has met a limit."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command,
            input=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return b""
    except OSError as error:
        raise UserError(f"cannot read a configuration: {error.strerror}; try again", 503) from error
    return b"" if done.returncode else done.stdout


def _limit(cpu_s: int, memory: int) -> None:
    """From now on, this process ends where it takes more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    with suppress(OSError, ValueError):  # not every system can
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with suppress(OSError):
        os.nice(NICENESS)


def main() -> None:
    """In the process of its own."""
    text, file, cpu_s, memory = pickle.load(sys.stdin.buffer)
    _limit(cpu_s, memory)
    try:
        result: object = load_text(text, file, most_nodes=MOST_NODES)
    except ConfigError as error:
        result = error.mistakes
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
