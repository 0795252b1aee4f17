"""The last days of a folder of records, as much of them as a trace is made of.

Pods that wait are asked about again and again, with all nodes that they may use: most of a record. Here each pod is
asked about once, and once more when it is placed. The lines cannot be repeated as a scenario any more.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hived.values.errors import UserError

MOST_BYTES = 1024 * 1024 * 1024
"""Of the files that are read for one answer."""

PAUSE = 32
"""Lines after which others are served."""

TOLD = ("progress", "delete", "new", "split")
"""Operations that are told as they are; `addBound` is told without its place."""


class _Question(msgspec.Struct, omit_defaults=True):
    """The rest of a question about a pod; of one that is left out, only a `time` remains."""

    op: str
    now: float | None = None
    pod: str = ""
    commit: bool = False
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    annotation: Any = None
    job: str = ""


_decoder = msgspec.json.Decoder(_Question)
_encoder = msgspec.json.Encoder()


def recent_parts(folder: Path, since_s: float) -> list[Path]:
    """The files of all runs that were written to after `since_s` (seconds since 1970), oldest first.

    Raises UserError if there are none (404), if the folder cannot be read (503), or if they are too large (413).
    """
    try:
        parts = sorted(folder.glob("*-[0-9]*.jsonl"))
        about = {part: part.stat() for part in parts}
    except OSError as error:
        raise UserError(f"the record cannot be read: {error.strerror}", 503) from error
    recent = {_run(part) for part in parts if about[part].st_mtime >= since_s}
    found = [part for part in parts if _run(part) in recent]
    if not found:
        raise UserError("no record is that young: ask for more days", 404)
    size = sum(about[part].st_size for part in found)
    if size > MOST_BYTES:
        raise UserError(
            f"that record has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read: ask for fewer days",
            413,
        )
    return found


def _run(part: Path) -> str:
    return part.name.rpartition("-")[0]


def recent_lines(parts: list[Path]) -> Iterator[bytes]:
    """Their lines, as much as a trace needs of them; empty ones after some that were left out.

    A part that goes away meanwhile counts as empty, a line that is still being written as none. Lines of no known form
    are told as they are: the reader of the trace says where they are wrong.
    """
    seen: set[str] = set()
    quiet = 0
    time: float | None = None
    for part in parts:
        try:
            with part.open("rb") as lines:
                for line in lines:
                    told, time = _told(line, seen, time)
                    quiet = 0 if told else quiet + 1
                    if told or quiet % PAUSE == 0:
                        yield told
        except FileNotFoundError:
            continue
    yield _before(time)


def _told(line: bytes, seen: set[str], time: float | None) -> tuple[bytes, float | None]:
    """The text told of a line, and the time of lines before it of which nothing was told."""
    if not line.endswith(b"\n"):
        return b"", time
    try:
        known = _decoder.decode(line)
    except msgspec.MsgspecError:
        return line, None
    if known.op == "addBound":
        seen.add(known.pod)
        return _before(time) + _line(known), None
    if known.op == "schedule":
        if known.pod in seen and not known.commit:
            return b"", known.now if known.now is not None else time
        seen.add(known.pod)
        return _line(known), None
    if known.op not in TOLD:
        return b"", known.now if known.now is not None else time
    return _before(time) + line, None


def _before(time: float | None) -> bytes:
    return b"" if time is None else _line(_Question("time", time))


def _line(told: _Question) -> bytes:
    return _encoder.encode(told) + b"\n"
