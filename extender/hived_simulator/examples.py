"""Folders that `hived simulate` takes: a configuration, and the trace that runs on it."""

from pathlib import Path

from hived.errors import UserError
from hived_simulator.plan import BASELINES, LENDING

CONFIG, TRACE = "hivedscheduler.yaml", "trace."
AGAINST = (*(kind.value for kind in BASELINES), LENDING, f"{LENDING}:30m")
"""Policies beside a folder's configuration, unless others are named."""


def folder_of(name: str) -> Path:
    """A folder by its path, else the example of that name that comes with hived. UserError if there is neither."""
    if (path := Path(name)).is_dir():
        return path
    for examples in _places():
        if (found := examples / path.name).is_dir():
            return found
    raise UserError(f"{name}: no such folder, and no example of that name; examples are {', '.join(_names())}")


def config_in(folder: Path) -> Path:
    """The configuration of a folder. UserError if there is none."""
    if not (found := folder / CONFIG).is_file():
        raise UserError(f"{folder}: has no {CONFIG}; name a configuration with --config")
    return found


def trace_in(folder: Path) -> Path:
    """The trace of a folder: its one file `trace.*`. UserError if there is none, or several."""
    found = sorted(path for path in folder.glob(f"{TRACE}*") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(f"{folder}: expected one file {TRACE}*, found {names}; name a trace with --trace")
    return found[0]


def _places() -> list[Path]:
    """Where examples are: beside this module in an installed package, else in the checkout."""
    here = Path(__file__).resolve()
    return [here.parent / "cases", here.parents[2] / "examples"]


def _names() -> list[str]:
    return sorted({path.parent.name for place in _places() for path in place.glob(f"*/{TRACE}*")})
