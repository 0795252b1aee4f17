"""The text of `nvidia-smi topo -m` -> how the GPUs of a machine are linked.

The command prints a header, a row for each GPU and network adapter, and a legend. The header has one column for each of
these devices, then CPU and NUMA affinity. Columns are parted by tabs, which become blanks when the text is copied from
a terminal, and the header may be underlined. Text around the matrix does not matter.
"""

import re
from collections.abc import Sequence

import msgspec

from hived_config.errors import ConfigError, Mistake
from hived_config.reader import printable, shorten

SELF = "X"
LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
"""Links through PCIe, nearest first; SOC is what old drivers call SYS."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})", re.ASCII)
_NVLINK = re.compile(r"NV\d{1,3}", re.ASCII)
_AFFINITY = re.compile(r"[0-9]+(?:[-,][0-9]+)*", re.ASCII)
_HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


class Matrix(msgspec.Struct, frozen=True):
    """The GPUs as the text describes them.

    Attributes
    ----------
    links : links[i][j] is how GPU i reaches GPU j: one of `LINKS`, or `NV4` and the like
    adapters : adapters[i] are the links from GPU i to each network adapter
    numa : by GPU, the NUMA nodes that are near to it, or its CPUs; "" where the text does not say
    """

    links: tuple[tuple[str, ...], ...]
    adapters: tuple[tuple[str, ...], ...]
    numa: tuple[str, ...]


def is_nvlink(link: str) -> bool:
    """Whether two GPUs are linked by NVLink, which hides how PCIe joins them."""
    return _NVLINK.fullmatch(link) is not None


def parse_matrix(text: str, file: str) -> Matrix:
    """Read the output of `nvidia-smi topo -m`; raises ConfigError with the first line that is not as expected."""
    lines = [_ESCAPE.sub("", line).replace("\r", "") for line in text.split("\n")]
    at = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise _error(file, 0, "no line with the columns GPU0, GPU1, ...", "the output of nvidia-smi topo -m")
    columns = _columns(lines[at])
    gpu_count = sum(1 for column in columns if _GPU.fullmatch(column))
    if columns[:gpu_count] != [f"GPU{i}" for i in range(gpu_count)]:
        raise _error(file, at + 1, f"columns {', '.join(columns)}", "GPU0, GPU1 and so on, and then network adapters")
    rows: list[list[str]] = []
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if not words or not _GPU.fullmatch(words[0]):
            if len(rows) < gpu_count and words:
                raise _error(file, number, f"a line that begins with {shorten(words[0])}", f"the row of GPU{len(rows)}")
            if len(rows) == gpu_count:
                break
            continue
        if words[0] != f"GPU{len(rows)}" or len(rows) == gpu_count:
            expected = f"the row of GPU{len(rows)}" if len(rows) < gpu_count else f"{gpu_count} rows, one for each GPU"
            raise _error(file, number, f"the row of {words[0]}", expected)
        _check_row(words[1:], columns, len(rows), file, number)
        rows.append(words[1:])
    if len(rows) < gpu_count:
        raise _error(file, len(lines), f"the end after {len(rows)} rows", f"the row of GPU{len(rows)}")
    _refuse_one_way_links(rows, file, at + 2)
    return Matrix(
        tuple(tuple(row[:gpu_count]) for row in rows),
        tuple(tuple(row[gpu_count : len(columns)]) for row in rows),
        tuple(_numa(row[len(columns) :]) for row in rows),
    )


def _is_header(line: str) -> bool:
    """Whether a line has the columns: it begins with GPU0 and goes on with GPU1, or with a word that no row has."""
    words = line.split()
    is_row = len(words) > 1 and (words[1] == SELF or words[1] in LINKS or is_nvlink(words[1]))
    return bool(words) and words[0] == "GPU0" and not is_row


def _columns(header: str) -> list[str]:
    ends = [header.index(heading) for heading in _HEADINGS if heading in header]
    return header[: min(ends, default=len(header))].split()


def _check_row(words: Sequence[str], columns: Sequence[str], gpu: int, file: str, number: int) -> None:
    """Every link has to be one that there is, the GPU itself has to be in its own column."""
    if len(words) < len(columns):
        raise _error(file, number, f"{len(words)} values for GPU{gpu}", f"at least {len(columns)}, one for each column")
    for at, (word, column) in enumerate(zip(words[: len(columns)], columns, strict=True)):
        is_link = word in LINKS or is_nvlink(word)
        if at == gpu and word != SELF:
            raise _error(file, number, f"{shorten(word)} between GPU{gpu} and itself", SELF)
        if at != gpu and not is_link:
            expected = f"one of {', '.join(LINKS)} or NV and a number"
            raise _error(file, number, f"{shorten(word)} between GPU{gpu} and {printable(column)}", expected)


def _refuse_one_way_links(rows: Sequence[Sequence[str]], file: str, first: int) -> None:
    for i, row in enumerate(rows):
        for j in range(i):
            if row[j] != rows[j][i]:
                found = f"{row[j]} from GPU{i} to GPU{j}, but {rows[j][i]} from GPU{j} to GPU{i}"
                raise _error(file, first + i, found, "the same link both ways")


def _numa(affinity: Sequence[str]) -> str:
    """Where a GPU is near to: the NUMA affinity, or else the CPU affinity."""
    known = [word if _AFFINITY.fullmatch(word) else "" for word in affinity[:2]]
    return (known[1] if len(known) > 1 and known[1] else known[0]) if known else ""


def _error(file: str, line: int, found: str, expected: str) -> ConfigError:
    return ConfigError([Mistake(file, line, "", found, expected)])
