"""Results of simulations, read back from their folders."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hived.values.errors import UserError
from hived_simulator.campaign import PolicyRun, Report
from hived_simulator.plan import FORMAT, Input, Kind
from hived_simulator.results import JobKind, Summary

RUN, VCS, DRAWS = "run.json", "vcs.json", "draws.json"
_TEXTS = ("vc", "kind", "cause", "level", "best_level")
_NUMBERS = ("leaf_cells", "priority", "delay_s", "excess_start_s", "waited_s", "submitted_s")


class Jobs(NamedTuple):
    """`jobs.csv` by column, each of shape (jobs,): texts as objects, numbers as float64, NaN where nothing stands."""

    vc: np.ndarray
    kind: np.ndarray
    cause: np.ndarray
    level: np.ndarray
    best_level: np.ndarray
    leaf_cells: np.ndarray
    priority: np.ndarray
    delay_s: np.ndarray
    excess_start_s: np.ndarray
    waited_s: np.ndarray
    submitted_s: np.ndarray

    @property
    def is_guaranteed(self) -> np.ndarray:
        """Bool of shape (jobs,)."""
        return np.asarray(self.priority >= 0)

    @property
    def is_gang(self) -> np.ndarray:
        """Bool of shape (jobs,)."""
        return np.asarray(self.kind == JobKind.GANG.value, dtype=np.bool_)


class Result(NamedTuple):
    """One policy of one simulation.

    label : its name, with that of its folder where several folders have the name
    rows : its figures, those of all virtual clusters first
    series : columns of `series.csv`, each of shape (moments,)
    draws : totals of the runs on drawn durations
    """

    label: str
    policy: PolicyRun
    rows: Sequence[Summary]
    jobs: Jobs
    series: dict[str, np.ndarray]
    draws: Sequence[Summary]

    @property
    def total(self) -> Summary:
        """The figures of all virtual clusters together."""
        return self.rows[0]

    @property
    def submitted_until_s(self) -> float:
        """The last submission, in seconds since the first."""
        return float(np.nanmax(self.jobs.submitted_s, initial=0.0))

    @property
    def is_private(self) -> bool:
        """True for the private clusters."""
        return self.policy.kind == Kind.PRIVATE


class Simulation(NamedTuple):
    """The folder of one `hived simulate`, and its results in the order in which they ran."""

    folder: Path
    run: Report
    results: tuple[Result, ...]


def read_simulations(folders: Sequence[Path]) -> list[Simulation]:
    """Read all folders. A policy whose inputs and results stand in an earlier folder, too, is left out.

    UserError names the file that is missing or damaged. Cost O(jobs), some 4 us each.
    """
    runs = [_decoded(folder / RUN, Report) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if run.format != FORMAT:
            raise UserError(f"{folder / RUN}: format: found {run.format!r}, this hived reads {FORMAT!r}")
    seen: list[tuple[Input, PolicyRun]] = []
    kept: list[tuple[Path, Report, list[PolicyRun]]] = []
    for folder, run in zip(folders, runs, strict=True):
        own = [policy for policy in run.policies if (run.trace.file, policy) not in seen]
        seen += [(run.trace.file, policy) for policy in own]
        kept.append((folder, run, own))
    names = [policy.name for _, _, own in kept for policy in own]
    taken: set[str] = set()
    return [
        Simulation(folder, run, tuple(_results(folder, own, names, taken)))
        for folder, run, own in kept
        if own
    ]  # fmt: skip


def _results(folder: Path, policies: Sequence[PolicyRun], names: Sequence[str], taken: set[str]) -> Iterator[Result]:
    """Read the files of some policies. `taken` has the labels so far; they are added to it."""
    rows = _decoded(folder / VCS, dict[str, list[Summary]])
    draws = _decoded(folder / DRAWS, dict[str, list[Summary]]) if (folder / DRAWS).exists() else {}
    for policy in policies:
        place = folder / policy.folder
        label = policy.name if names.count(policy.name) == 1 else f"{policy.name} ({folder.resolve().name})"
        label = next(text for text in (label, *(f"{label} {each}" for each in range(2, 99))) if text not in taken)
        taken.add(label)
        if not rows.get(policy.name):
            raise UserError(f"{folder / VCS}: has no figures of {policy.name!r}, which {RUN} names; simulate again")
        own = draws.get(policy.name, ())
        yield Result(label, policy, rows[policy.name], _jobs(place / "jobs.csv"), _series(place / "series.csv"), own)


def _decoded(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise UserError(
            f"{path.parent}: has no {path.name}; expected the folder of a finished `hived simulate`"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UserError(f"{path}: {error}; simulate again, with this version of hived") from error


def _jobs(path: Path) -> Jobs:
    columns = _columns(path, (*_TEXTS, *_NUMBERS))
    texts = [np.array(columns[name], dtype=object) for name in _TEXTS]
    return Jobs(*texts, *(_numbers(path, name, columns[name]) for name in _NUMBERS))


def _series(path: Path) -> dict[str, np.ndarray]:
    columns = _columns(path, ("at_s", "leaf_cells", "used", "lent"))
    return {name: _numbers(path, name, values) for name, values in columns.items()}


def _columns(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    """The columns of a table, as texts. UserError if it cannot be read, or one of the wanted columns is missing."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            names = next(rows, [])
            if lacking := [name for name in wanted if name not in names]:
                raise UserError(f"{path}:1: has no column {lacking[0]!r}; simulate again, with this version of hived")
            columns: list[list[str]] = [[] for _ in names]
            for row in rows:
                if len(row) != len(names):
                    raise UserError(f"{path}:{rows.line_num}: has {len(row)} fields, expected {len(names)}")
                for column, text in zip(columns, row, strict=True):
                    column.append(text)
    except (OSError, UnicodeError, csv.Error) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}; simulate again") from error
    return dict(zip(names, columns, strict=True))


def _numbers(path: Path, name: str, texts: Sequence[str]) -> np.ndarray:
    try:
        return np.array([float(text) if text else np.nan for text in texts], dtype=np.float64)
    except ValueError:
        line = next(number for number, text in enumerate(texts, 2) if text and not _is_number(text))
        raise UserError(f"{path}:{line}: {name}: found {texts[line - 2][:40]!r}, expected a number") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
