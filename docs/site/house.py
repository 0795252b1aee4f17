"""The shape of the code: rooms, floors and arrows as a picture, and the road of a queued job through files and locks.

A room is a folder of a package, with the folders in it, or the modules beside them. Its arrows lead to the rooms
that it imports from. An arrow back closes a circle; without these, a room stands one floor above the highest room that
it imports from. `docs/house.md` shows what this prints:

    python -m docs.site.house                    figures of all rooms
    python -m docs.site.house --picture rooms.svg
    python -m docs.site.house --picture hived.svg --of hived     the modules of one package
    python -m docs.site.house --road             a job on an embedded cluster
    python -m docs.site.house --served           what `hived serve` imports
"""

import argparse
import ast
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from docs.site.pages import ROOT
from hived_config.loader import load_text
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.start import start_embedded

Arrows = dict[str, set[str]]

# ---- rooms


def packages() -> list[Path]:
    """The folders of the packages that are delivered."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [ROOT / each for each in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def modules() -> dict[str, Path]:
    """All modules by their dotted names."""
    found = {}
    for package in packages():
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def room_of(module: str, path: Path) -> str:
    """The package of a module, or the folder of it that the module is in, however deep."""
    folder = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return ".".join(folder.split(".")[:2])


def arrows_between(found: Mapping[str, Path], place: Callable[[str], str]) -> Arrows:
    """Which places import from which others; imports inside functions count as well."""
    arrows: Arrows = {place(module): set() for module in found}
    for module, path in found.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _imported(node):
                target = name if name in found else name.rpartition(".")[0]
                if target in found and place(target) != place(module):
                    arrows[place(module)].add(place(target))
    return arrows


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{each.name}" for each in node.names)


def back(arrows: Arrows) -> set[tuple[str, str]]:
    """The arrows that close a circle."""
    reached = {place: _reached(arrows, place) for place in arrows}
    return {(source, target) for source in arrows for target in arrows[source] if source in reached[target]}


def _reached(arrows: Arrows, start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = arrows[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def floors(arrows: Arrows) -> dict[str, int]:
    """The floor of each place, the lowest is 1."""
    closing = back(arrows)
    found: dict[str, int] = {}

    def floor(place: str) -> int:
        if place not in found:
            below = (target for target in arrows[place] if (place, target) not in closing)
            found[place] = 1 + max((floor(target) for target in below), default=0)
        return found[place]

    for place in arrows:
        floor(place)
    return found


def _line(arrows: Arrows) -> str:
    count = sum(len(targets) for targets in arrows.values())
    return f"| {len(arrows)} | {max(floors(arrows).values())} | {count} | {len(back(arrows))} |"


def figures() -> str:
    """Rooms, floors and arrows of the whole, of the modules of each package, and of each room."""
    found = modules()
    rooms = {module: room_of(module, path) for module, path in found.items()}
    arrows = arrows_between(found, rooms.__getitem__)
    lines = {module: len(path.read_text().splitlines()) for module, path in found.items()}
    rows = [
        "| of | places | floors | arrows | arrows back |",
        "|---|---:|---:|---:|---:|",
        f"| all rooms {_line(arrows)}",
    ]
    for package in sorted({module.partition(".")[0] for module in found}):
        own = {module: path for module, path in found.items() if module.partition(".")[0] == package}
        rows.append(f"| rooms of `{package}` {_line(arrows_between(own, rooms.__getitem__))}")
        rows.append(f"| modules of `{package}` {_line(arrows_between(own, str))}")
    rows += ["", "| room | floor | modules | lines | imports from |", "|---|---:|---:|---:|---:|"]
    for room, floor in sorted(floors(arrows).items(), key=lambda each: (each[1], each[0])):
        inside = [module for module in found if rooms[module] == room]
        total = sum(lines[module] for module in inside)
        rows.append(f"| `{room}` | {floor} | {len(inside)} | {total:,} | {len(arrows[room])} |")
    rows.append(f"| all | | {len(found)} | {sum(lines.values()):,} | |")
    return "\n".join(rows)


# ---- the picture

_ROW, _BOX, _GAP, _HEIGHT = 74, 132, 14, 32


def picture(of: str = "") -> str:
    """The rooms of all packages, or the modules of one, as SVG: the lowest floor below, arrows back in red."""
    found = {module: path for module, path in modules().items() if not of or module.partition(".")[0] == of}
    arrows = arrows_between(found, str if of else lambda module: room_of(module, found[module]))
    by_floor: defaultdict[int, list[str]] = defaultdict(list)
    for place, floor in sorted(floors(arrows).items()):
        by_floor[floor].append(place)
    width = max(len(row) for row in by_floor.values()) * (_BOX + _GAP) + _GAP
    height = len(by_floor) * _ROW + _GAP
    at = {
        place: ((width - len(row) * (_BOX + _GAP)) // 2 + number * (_BOX + _GAP), height - floor * _ROW)
        for floor, row in by_floor.items()
        for number, place in enumerate(row)
    }
    closing = back(arrows)
    shapes = [_arrow(at[a], at[b], (a, b) in closing) for a in sorted(arrows) for b in sorted(arrows[a])]
    shapes += [_box(place, *at[place]) for place in sorted(at)]
    look = (
        "rect{fill:#eef3fa;stroke:#456}text{font:10px sans-serif;text-anchor:middle;fill:#123}"
        "line{stroke:#456;stroke-opacity:.35}.back{stroke:#d22;stroke-opacity:1}svg{background:#fff}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{look}</style>", *shapes, "</svg>", ""])


def _arrow(source: tuple[int, int], target: tuple[int, int], is_back: bool) -> str:
    (x, y), (to_x, to_y) = source, target
    start, end = (y, to_y + _HEIGHT) if y > to_y else (y + _HEIGHT, to_y)
    kind = ' class="back"' if is_back else ""
    return f'<line{kind} x1="{x + _BOX // 2}" y1="{start}" x2="{to_x + _BOX // 2}" y2="{end}"/>'


def _box(place: str, x: int, y: int) -> str:
    package, _, rest = place.partition(".")
    lines = [(package, 13), (rest, 25)] if rest else [(package, 20)]
    return f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="4"/>' + "".join(
        f'<text x="{x + _BOX // 2}" y="{y + below}">{text}</text>' for text, below in lines
    )


# ---- the road

JOB = "queued-train"
"""A name that nothing else has in it."""

STAGES = ("waits", "starts", "runs")
CONFIG = """\
rules: 2
queues: {enabled: true}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n1}]
virtualClusters: {a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}}
"""
_JOBS, _PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
_SERVICE = str(ROOT / "extender" / "hived_extender")


class Road:
    """Notes the files and locks of the service that a job comes by, stage by stage; "" is no stage.

    A file is crossed by a call of one of its functions with an argument that names the job or its pods. A lock counts
    if it is taken inside such a call.
    """

    def __init__(self) -> None:
        self.stage = ""
        self.files: dict[str, set[str]] = {stage: set() for stage in STAGES}
        self.locks: dict[str, set[str]] = {stage: set() for stage in STAGES}
        self._seen: set[tuple[str, CodeType]] = set()
        self._looking = threading.local()

    def called(self, frame: FrameType, event: str, argument: object) -> None:
        """Python calls this at each call of a function, in each thread."""
        stage, code = self.stage, frame.f_code
        if event == "call" and stage and _is_ours(code) and (stage, code) not in self._seen and self._carries(frame):
            self._seen.add((stage, code))
            self.files[stage].add(_file(code))

    def took(self, lock: str) -> None:
        """A lock is about to be taken."""
        stage = self.stage
        frame: FrameType | None = sys._getframe(2)
        while stage and frame is not None:
            if _is_ours(frame.f_code) and self._carries(frame):
                self.locks[stage].add(lock)
                return
            frame = frame.f_back

    def _carries(self, frame: FrameType) -> bool:
        if getattr(self._looking, "is_on", False):  # what looks at arguments calls properties of them
            return False
        self._looking.is_on = True
        try:
            code, values = frame.f_code, frame.f_locals
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            return any(_names_the_job(values.get(name)) for name in names)
        finally:
            self._looking.is_on = False


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_SERVICE)


def _file(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(_SERVICE).as_posix()


def _names_the_job(value: object, depth: int = 4) -> bool:
    """Whether a value is about the job: a text, a record, or a small collection of these."""
    if isinstance(value, str):
        return JOB in value
    if isinstance(value, bytes):
        return JOB.encode() in value
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = [*value, *value.values()] if len(value) < 64 else ()
    elif isinstance(value, tuple | list | set | frozenset):
        inner = [*value] if len(value) < 64 else ()
    elif isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value) and vars(type(value))["__dataclass_params__"].frozen:
        inner = [getattr(value, each.name) for each in dataclasses.fields(value)]
    return depth > 0 and any(_names_the_job(each, depth - 1) for each in inner)


class _Lock:
    """A lock that tells the road when it is taken."""

    def __init__(self, lock: Any, name: str, road: Road) -> None:
        self._lock, self._name, self._road = lock, name, road

    def acquire(self, *arguments: Any, **options: Any) -> bool:
        self._road.took(self._name)
        return bool(self._lock.acquire(*arguments, **options))

    def __enter__(self) -> None:
        self._road.took(self._name)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def _noting(make: Callable[..., Any], road: Road) -> Callable[..., Any]:
    """Make locks that tell, where the service makes them."""

    def made(*arguments: Any) -> Any:
        lock, frame = make(*arguments), sys._getframe(1)
        while frame.f_code.co_filename == threading.__file__ and frame.f_back is not None:  # a condition makes one
            frame = frame.f_back
        return _Lock(lock, _file(frame.f_code), road) if _is_ours(frame.f_code) else lock

    return made


def road() -> str:
    """The road of a job that waits for another one: files and locks by stage, and what the process has imported."""
    way = Road()
    for name in ("Lock", "RLock"):
        setattr(threading, name, _noting(getattr(threading, name), way))
    threading.setprofile(way.called)
    sys.setprofile(way.called)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hivedscheduler.yaml"
        file.write_text(CONFIG)
        with start_embedded(file, has_webhook=True) as running:
            kube = KubeClient.connect(kubeconfig=str(running.cluster.kubeconfig))
            _run(way, kube)
            kube.close()
    sys.setprofile(None)
    return _told(way)


def _run(way: Road, kube: KubeClient) -> None:
    def runs(name: str) -> bool:
        pods = kube.get(_PODS)["items"]
        return any(pod["metadata"]["name"].startswith(name) and pod["status"].get("phase") == "Running" for pod in pods)

    kube.create(_JOBS, _job("first"))
    _wait(lambda: runs("first"))
    way.stage = "waits"
    kube.create(_JOBS, _job(JOB))
    time.sleep(3)  # it has been told where it stands, and its records are written
    way.stage = "starts"
    kube.delete(f"{_JOBS}/first")
    _wait(lambda: not kube.get(f"{_JOBS}/{JOB}")["spec"]["suspend"])
    way.stage = "runs"
    _wait(lambda: runs(JOB))
    time.sleep(1)
    way.stage = ""


def _job(name: str) -> dict[str, Any]:
    prefix = "hivedscheduler.microsoft.com/"
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {
        "metadata": {"annotations": {f"{prefix}virtual-cluster": "a", f"{prefix}priority": "10"}},
        "spec": {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]},
    }
    spec = {"parallelism": 1, "completions": 1, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not until():
        if time.monotonic() > end:
            raise TimeoutError("the job does not come along")
        time.sleep(0.02)


def _told(way: Road) -> str:
    rows = ["| room | " + " | ".join(STAGES) + " | all |", "|---|" + "---:|" * (len(STAGES) + 1)]
    every = set().union(*way.files.values())

    def count(of: set[str], room: str) -> int:
        return sum(Path(file).parent.as_posix() == room for file in of)

    for room in sorted({Path(file).parent.as_posix() for file in every}):
        rows.append(
            f"| `{room}` | {' | '.join(str(count(way.files[s], room)) for s in STAGES)} | {count(every, room)} |"
        )
    rows.append(f"| files | {' | '.join(str(len(way.files[s])) for s in STAGES)} | {len(every)} |")
    locks = set().union(*way.locks.values())
    rows.append(f"| locks | {' | '.join(str(len(way.locks[s])) for s in STAGES)} | {len(locks)} |")
    rows += ["", "Locks are made in " + ", ".join(f"`{lock}`" for lock in sorted(locks)) + ".", ""]
    for room in sorted({Path(file).parent.as_posix() for file in every}):
        rows.append(f"- `{room}`: " + ", ".join(sorted(Path(file).stem for file in every if count({file}, room))))
    return "\n".join(rows)


# ---- the process

_SERVE = """\
import atexit, os, signal, sys, threading
from hived_cli import main
threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGTERM)).start()
atexit.register(lambda: print(*sys.modules))
main(["serve", "--config", {file!r}, "--listen", "127.0.0.1:0"])
"""


def served(seconds: float = 10) -> str:
    """How much of the product the serving process imports, beside an API server in another one."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(load_text(CONFIG, "house").cluster) as cluster:
        file = Path(folder) / "hivedscheduler.yaml"
        file.write_text(CONFIG)
        command = [sys.executable, "-c", _SERVE.format(seconds=seconds, file=str(file))]
        environment = {**os.environ, "KUBECONFIG": str(cluster.hived_kubeconfig)}
        names = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    loaded = [path for name, path in modules().items() if name in names]
    lines = sum(len(path.read_text().splitlines()) for path in loaded)
    return f"{len(loaded)} modules with {lines:,} lines"


def main() -> None:
    """Print or draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the picture there, as SVG")
    parser.add_argument("--of", default="", metavar="PACKAGE", help="draw the modules of this package, not the rooms")
    parser.add_argument("--road", action="store_true", help="follow a queued job on an embedded cluster")
    parser.add_argument("--served", action="store_true", help="count what the serving process imports")
    asked = parser.parse_args()
    if asked.picture:
        asked.picture.write_text(picture(asked.of))
    else:
        print(road() if asked.road else served() if asked.served else figures())


if __name__ == "__main__":
    main()
