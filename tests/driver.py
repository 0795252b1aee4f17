"""The parts that all programs of tests share: options, processes, seeds, progress, and findings that are kept."""

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, process_time
from typing import Any, NoReturn, Protocol, TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")
TELL_EVERY_S = 5.0


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def run_program(main: Callable[[], int]) -> NoReturn:
    """Run a program to its exit code; 130 if it is interrupted."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)


# Options


def new_parser(program: str, about: str | None, examples: str = "") -> argparse.ArgumentParser:
    """The parser of `python -m PROGRAM`, described by the first line of its docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}", description=(about or "").splitlines()[0], epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def process_count(text: str) -> int:
    """The number of processes that an option names. Raises ArgumentTypeError unless it is 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: expected 1 or more")
    return int(text)


def names_of(kind: str, known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """A reader of names with commas. It raises ArgumentTypeError for an unknown one."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no {kind}; {kind}s are {', '.join(known)}")
        return names

    return read


# Processes


def run_all(
    todo: Sequence[Asked], run: Callable[[Asked], Found], jobs: int, name_of: Callable[[Asked], str] = str
) -> list[Found]:
    """The results in the order of `todo`, which also begin in this order, by any number of processes."""
    found: dict[int, Found] = {}
    began = monotonic()
    for number, result, seconds in _run_each(todo, run, jobs):
        found[number] = result
        progress = f"{monotonic() - began:6.0f} s  {len(found)}/{len(todo)}  {name_of(todo[number])}"
        say(f"{progress}  ({seconds:.1f} s of CPU time)")
    return [found[number] for number in range(len(todo))]


def _run_each(todo: Sequence[Any], run: Callable[[Any], Any], jobs: int) -> Iterator[tuple[int, Any, float]]:
    if jobs == 1:
        yield from (_run(run, number, asked) for number, asked in enumerate(todo))
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_run, run, number, asked) for number, asked in enumerate(todo)]):
            yield done.result()


def _run(run: Callable[[Any], Any], number: int, asked: Any) -> tuple[int, Any, float]:
    before = process_time()
    return number, run(asked), process_time() - before


# Random runs


def history_parser(program: str, about: str | None, unit: str, enough: int, seed: int = 0) -> argparse.ArgumentParser:
    """The parser of a program that goes through seeds until it has done enough of a unit: `--UNIT`, `--seed`."""
    parser = new_parser(program, about)
    parser.add_argument(f"--{unit}", dest="enough", type=int, default=enough, help="at least [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=seed, help="the first one [default: %(default)s]")
    parser.set_defaults(unit=unit)
    return parser


def seeds(options: argparse.Namespace, done: Callable[[], int], more: Callable[[], str] = lambda: "") -> Iterator[int]:
    """Each seed from the first on until enough is done; says now and then, and at the end, how much that is."""
    began = told = monotonic()
    seed = options.seed
    while done() < options.enough:
        yield seed
        if monotonic() - told > TELL_EVERY_S or done() >= options.enough:
            told = monotonic()
            say(f"{done()} of {options.enough} {options.unit}, seed {seed}, {told - began:.0f} s {more()}")
        seed += 1


class Judged(Protocol):
    """A random state, and a judge of it."""

    def play(self) -> str:
        """The first wrong answer about the state, if there is one."""

    def close(self) -> None:
        """End its cluster."""


def judge_states(program: str, about: str | None, make: Callable[[int], Judged]) -> int:
    """Judge a state for each seed; returns 1 if anything is wrong with one."""
    found: list[str] = []
    options = history_parser(program, about, "states", 10_000).parse_args()
    for seed in seeds(options, lambda: len(found), lambda: f"{sum(map(bool, found))} wrong"):
        with closing(make(seed)) as state:
            found.append(state.play())
            if found[-1]:
                print(f"state {seed}: {found[-1]}", flush=True)
    return int(any(found))


def add_any_seed(parser: argparse.ArgumentParser) -> None:
    """The option `--seed` of a program that draws one without it."""
    parser.add_argument("--seed", type=int, help="[default: a random one, which is printed]")


@contextmanager
def seeded(options: argparse.Namespace) -> Iterator[int]:
    """The seed of a run, which is printed before it and, with the seconds, after it."""
    seed = random.randrange(10**6) if options.seed is None else options.seed
    say(f"seed {seed}")
    began = monotonic()
    try:
        yield seed
    finally:
        print(f"{monotonic() - began:.0f} s, seed {seed}")


@contextmanager
def kept(file: Path, write: Callable[[Path], object]) -> Iterator[None]:
    """Write down a history that breaks a rule; the error says where it is."""
    try:
        yield
    except Exception as error:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file)
        error.add_note(f"written to {file}")
        raise
