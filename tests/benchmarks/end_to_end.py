"""End to end, this checkout beside another one: `python -m tests.benchmarks.end_to_end --against CHECKOUT`.

The programs of this checkout drive both through public doors: the command `hived`, HTTP, and objects of an API server.
Each has a cluster of its own, at the same time, and they take turns of a second or so. Others who use the machine slow
both alike. `Embedded` is the embedded API server with 1,024 nodes in a process of its own, and `hived serve` beside it.
`Real` is kube-scheduler and the other programs of `make e2e`.

The ratio of a figure is the median of the ratios of all turns. Its noise is what the ratio of a checkout to itself
exceeds in one of a hundred such runs, by the spread of these rounds. Exit code 1: a figure is larger than the other
checkout's by more than 5 % and the noise.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hived.values.specs import Rules
from hived_deploy.installation import kinds_of_queues
from hived_extender.kube.client import NODES as NODE_LIST
from hived_extender.kube.client import PODS, KubeClient, KubeError
from tests.benchmarks.load import VC_NAMES, config_text, with_rack_moved
from tests.benchmarks.process import cpu_s, describe_machine, resident_mb
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import RealCluster, store_config_map
from tests.e2e.load import mixed
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import DEFINITIONS
from tests.e2e.pods import POD_LIST, Json, configuration, create, pod, pod_changes
from tests.e2e.processes import Process, StartError, answers, free_port, hived_process
from tests.e2e.tools import DEFAULT, VERSIONS, ToolsMissing, find
from tests.expecting import expect_soon
from tests.parts import MadeOfParts
from tests.places import ROOT
from tests.programs import program

LIMIT = 0.05
NODES, REAL_NODES = 1024, 48
BOUND = {"alpha": (448, 8), "beta": (400, 1), "gamma": (100, 4)}
"""Pods that run from the start, and GPUs of each: all of alpha, and some of the others."""

WAITING, STARTS, TRACED = 6, 3, 300
POD_TURNS, POD_COUNT, JOB_TURNS, JOB_COUNT = 6, 10, 4, 5
MIXED_TURNS, MIXED_COUNT, MIXED_GANGS = 2, 40, 5
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CONFIG_MAP = "default/end-to-end"
LONGEST_S, LEASE_S, SETTLED_S, ASK_S = 120.0, 120, 1.0, 0.005
DRAWS = 2000

Figures = dict[str, float]
Round = dict[str, list[tuple[float, float]]]
"""By figure: those of the other checkout and of ours, turn by turn."""

COMMAND, HIVED = "  CPU of the command, ms", "  CPU of hived, ms"
TITLES = {
    "start": "process start to first answered filter call, s",
    "start cpu": "  CPU of that, s",
    "memory": f"resident memory then, {sum(count for count, _ in BOUND.values())} pods bound, MB",
    "idle": "CPU in a second without news, ms",
    "why": "`hived why` of a waiting pod, ms",
    "why cpu": COMMAND,
    "why service": HIVED,
    "push": "`hived config push --certify`, ms",
    "push cpu": COMMAND,
    "push service": HIVED,
    "pod": "a pod, from creation to bound, embedded scheduler, ms",
    "pod cpu": HIVED,
    "mixed": "each of 40 pods at once, most in gangs, ms",
    "mixed cpu": HIVED,
    "job": "a queued job, from creation to Running, embedded controllers, ms",
    "job cpu": HIVED,
    "real pod": "a pod, from creation to bound, kube-scheduler, ms",
    "real pod cpu": HIVED,
    "real mixed": "each of 40 pods at once, most in gangs, ms",
    "real mixed cpu": HIVED,
    "real job": "a queued job, from creation to Running, Kubernetes' controllers, ms",
    "real job cpu": HIVED,
}
"""All figures, in the order of the table."""


class Cluster(MadeOfParts):
    """A cluster for one checkout: `kube` its API server, `pid` hived's."""

    kube: KubeClient
    prefix = ""
    """Of its figures."""

    vc: str
    """With room for all that comes and goes."""

    @property
    def pid(self) -> int:
        """Of hived."""
        raise NotImplementedError

    def one_by_one(
        self, key: str, path: str, objects: Sequence[Json], is_there: Callable[[Json, str], bool]
    ) -> Figures:
        """Create objects, each when a pod shows that the last one is there: median time, and CPU of hived for each."""
        changes, before, spent = self._changes(), cpu_s(self.pid), []
        for one in objects:
            began = time.monotonic()
            self.kube.create(path, one)
            next(found for found in changes if is_there(found, one["metadata"]["name"]))
            spent.append(time.monotonic() - began)
        return self._figures(key, median(spent), (cpu_s(self.pid) - before) / len(objects))

    def all_at_once(self, key: str, pods: Sequence[Json]) -> Figures:
        """Create pods, which are gone afterwards: time and CPU of hived for each until all are bound."""
        changes, before, began = self._changes(), cpu_s(self.pid), time.monotonic()
        create(self.kube, pods)
        await_bound(changes, {one["metadata"]["name"] for one in pods})
        spent = [each / len(pods) for each in (time.monotonic() - began, cpu_s(self.pid) - before)]
        self.clear()
        return self._figures(key, *spent)

    def clear(self) -> None:
        """Delete all that came."""
        for job in self.kube.get(JOBS)["items"]:
            self.kube.delete(f"{JOBS}/{job['metadata']['name']}")

        def are_gone() -> bool:
            left = [one["metadata"]["name"] for one in self.kube.list_objects(PODS, Json).items]
            left = [name for name in left if name.startswith(("pod-", "job-", "gang-", "single-"))]
            for name in left:
                with suppress(KubeError):  # its controller was quicker
                    self.kube.delete_pod("default", name, grace_period_s=0)
            return not left

        expect_soon(are_gone)

    def _changes(self) -> Iterator[Json]:
        return pod_changes(self.kube, self.kube.list_objects(PODS, Json).resource_version, LONGEST_S)

    def _figures(self, key: str, seconds: float, cpu: float) -> Figures:
        return {f"{self.prefix}{key}": seconds * 1e3, f"{self.prefix}{key} cpu": cpu * 1e3}


class Embedded(Cluster):
    """An embedded cluster of 1,024 nodes, or so many times that, whose scheduler asks hived."""

    vc = "gamma"

    def __init__(self, product: Path, times: int = 1) -> None:
        self._product, self._times = product, times
        self._port = free_port()
        self._url = f"http://{LOOPBACK}:{self._port}"

    def _begin(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hived-bench-")))
        self._config, self._log = folder / "config.yaml", folder / "command.log"
        text = config_text(NODES * self._times, Rules.BETTER) + "queues: {enabled: true}\n"
        self._config.write_text(text)
        (folder / "other.yaml").write_text(with_rack_moved(text, "gamma"))
        (folder / "trace.csv").write_text(trace())
        push = ["config", "push", "--yes", "--certify", str(folder / "trace.csv")]
        self.pushes = [[*push, str(folder / name)] for name in ("other.yaml", "config.yaml")]
        api_port, kubeconfig = free_port(), folder / "kubeconfig"
        api = Process(
            "api",
            [sys.executable, "-m", "tests.attacks.api", f"--config={self._config}", f"--port={api_port}",
             f"--kubeconfig={kubeconfig}", f"--extender={self._url}"],
            folder / "api.log",
            is_ready=lambda: kubeconfig.exists() and answers(f"http://{LOOPBACK}:{api_port}/api/v1/nodes?limit=1"),
            environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        stack.callback(api.stop)
        api.start()
        self.kube = KubeClient.connect(kubeconfig=str(kubeconfig))
        stack.callback(self.kube.close)
        self._service = hived_process(
            "hived", self._port, [f"--config-map={CONFIG_MAP}"], folder / "hived.log",
            is_ready=lambda: answers(f"{self._url}/readyz"),
            environment={"KUBECONFIG": str(kubeconfig), "PYTHONDONTWRITEBYTECODE": ""}, product=self._product,
        )  # fmt: skip
        stack.callback(self._service.stop)
        self._fill()

    def _fill(self) -> None:
        """Have all pods bound that run from the start, and create those that wait."""
        store_config_map(self.kube, self._config, *CONFIG_MAP.split("/"))
        self._service.start()
        check_kernels(self._product, self._url)
        changes = self._changes()
        sizes = {
            f"{vc}-{number}": (vc, gpus)
            for vc, (count, gpus) in BOUND.items() for number in range(count * self._times)
        }  # fmt: skip
        create(self.kube, [pod(name, vc=vc, gpus=gpus) for name, (vc, gpus) in sizes.items()])
        await_bound(changes, set(sizes))
        create(self.kube, [pod(f"waiting-{number}", vc=VC_NAMES[0], gpus=8) for number in range(WAITING)])
        asked = self.kube.get(f"{POD_LIST}/waiting-0")
        nodes = [one["metadata"]["name"] for one in self.kube.list_objects(NODE_LIST, Json).items]
        self._question = json.dumps({"Pod": asked, "Nodes": None, "NodeNames": nodes}).encode()

    @property
    def pid(self) -> int:
        """Of hived."""
        return self._service.pid

    def start(self) -> Figures:
        """Start hived anew: time and CPU until it has answered a filter call."""
        self._service.stop()
        began = time.monotonic()
        self._service.start(ready_s=None)
        while not self._is_answered():
            if not self._service.is_running or time.monotonic() > began + LONGEST_S:
                raise StartError(f"hived answers no filter call\n{self._service.tail()}")
            time.sleep(ASK_S)
        return {"start": time.monotonic() - began, "start cpu": cpu_s(self.pid)}

    def _is_answered(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/v1/extender/filter", self._question, LONGEST_S) as answer:
                return not json.load(answer)["Error"]
        except OSError:
            return False

    def command(self, key: str, words: Sequence[str]) -> Figures:
        """A command: time, its CPU, and that of hived."""
        hived, path = program(self._product)
        environment = {**os.environ, "PYTHONPATH": path, "HIVED_SERVER": self._url, "PYTHONDONTWRITEBYTECODE": ""}
        before, began = cpu_s(self.pid), time.monotonic()
        with self._log.open("wb") as log:
            process = subprocess.Popen([*hived, *words], env=environment, stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
        spent = time.monotonic() - began, usage.ru_utime + usage.ru_stime, cpu_s(self.pid) - before
        if status:
            raise RuntimeError(f"hived {' '.join(words)} failed: {self._log.read_text()}")
        return dict(zip((key, f"{key} cpu", f"{key} service"), (1e3 * each for each in spent), strict=True))


def trace() -> str:
    """A day of jobs, for certificates."""
    draw = random.Random(1)
    lines = ["job_id,vc,submit_time,duration,gpus"]
    for number in range(TRACED):
        hour, minute = divmod(number * 24 * 60 // TRACED, 60)
        asked = f"{draw.choice(VC_NAMES)},2026-03-02 {hour:02d}:{minute:02d}:00,{draw.randrange(600, 20_000)}"
        lines.append(f"job-{number},{asked},{draw.choice((1, 2, 4, 8, 16, 64))}")
    return "\n".join(lines) + "\n"


class Real(Cluster):
    """A real control plane with 48 nodes."""

    vc, prefix = "a", "real "

    def __init__(self, product: Path, version: str) -> None:
        name = f"end-to-end-{os.getpid()}-{free_port()}"
        self._product, self._plane = product, ControlPlane(find(version), name, lease_s=LEASE_S)

    def _begin(self, stack: ExitStack) -> None:
        stack.enter_context(self._plane)
        self.kube = self._plane.kube
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hived-bench-")))
        file = configuration(folder, {self.vc: REAL_NODES}, rules=2, queues={"enabled": True})
        namespace, *definitions = kinds_of_queues()
        self.kube.create("/api/v1/namespaces", namespace)
        for each in definitions:
            self.kube.create(DEFINITIONS, each)
        self._cluster = stack.enter_context(
            RealCluster(
                self._plane, file, is_direct=True, product=self._product, environment={"PYTHONDONTWRITEBYTECODE": ""}
            )
        )
        check_kernels(self._product, self._cluster.url)

    @property
    def pid(self) -> int:
        """Of hived."""
        return self._cluster.services[0].pid

    def start(self) -> Figures:
        """Start hived anew, as figures of one process may all be a little larger than those of another."""
        self._cluster.restart_service()
        return {}


def check_kernels(product: Path, url: str) -> None:
    """Refuse a checkout whose library of kernels is not of its sources: figures with compiled ones are others."""
    with urllib.request.urlopen(f"{url}/readyz") as answer:
        kernels = json.load(answer)["kernels"]
    if not kernels.startswith("linked"):
        raise StartError(f"{product}: kernels are {kernels}, not linked: run `make kernels` there")


def await_bound(changes: Iterator[Json], names: set[str]) -> None:
    """Wait until all pods of these names are bound."""
    left = set(names)
    while left:
        one = next(changes)
        left -= {one["metadata"]["name"]} if one["spec"].get("nodeName") else set()


def queued_job(name: str, vc: str) -> Json:
    """A Job of one pod and one GPU that is born suspended."""
    said = {"virtual-cluster": vc, "priority": "10"}
    annotations = {f"hivedscheduler.microsoft.com/{key}": value for key, value in said.items()}
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"schedulerName": f"hivedscheduler-ds-{vc}", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}}


def _is_bound(seen: Json, name: str) -> bool:
    return seen["metadata"]["name"] == name and bool(seen["spec"].get("nodeName"))


def _runs(seen: Json, job: str) -> bool:
    labels = seen["metadata"].get("labels") or {}
    return labels.get("batch.kubernetes.io/job-name") == job and seen["status"].get("phase") == "Running"


class Turns:
    """The figures of a round, in which the two clusters take turns; who begins changes each time."""

    def __init__(self, other: Cluster, ours: Cluster) -> None:
        self.found: Round = defaultdict(list)
        self._lanes = (other, ours)

    def take(self, count: int, act: Callable[[Cluster, int], Figures]) -> None:
        """Let both act so often."""
        for number in range(count):
            lanes = self._lanes if number % 2 else self._lanes[::-1]
            figures = {id(lane): act(lane, number) for lane in lanes}
            other, ours = (figures[id(lane)] for lane in self._lanes)
            for key, value in other.items():
                self.found[key].append((value, ours[key]))


def measure(other: Cluster, ours: Cluster) -> Round:
    """All figures of one round."""
    turns = Turns(other, ours)
    if isinstance(ours, Embedded):
        turns.take(STARTS, lambda lane, _: lane.start())
        time.sleep(SETTLED_S)
        turns.take(1, lambda lane, _: {"memory": resident_mb(lane.pid)})
        turns.take(2, lambda lane, _: {"idle": _idle_ms(lane.pid)})
        turns.take(WAITING, lambda lane, number: lane.command("why", ["why", f"default/waiting-{number}"]))
        turns.take(2, lambda lane, number: lane.command("push", lane.pushes[number]))
    else:
        turns.take(1, lambda lane, _: lane.start())

    def pods(lane: Cluster, turn: int) -> Figures:
        made = [pod(f"pod-{turn}-{number}", vc=lane.vc) for number in range(POD_COUNT)]
        return lane.one_by_one("pod", POD_LIST, made, _is_bound)

    def jobs(lane: Cluster, turn: int) -> Figures:
        made = [queued_job(f"job-{turn}-{number}", lane.vc) for number in range(JOB_COUNT)]
        return lane.one_by_one("job", JOBS, made, _runs)

    def backlog(lane: Cluster, turn: int) -> Figures:
        return lane.all_at_once("mixed", [one for job in mixed(MIXED_COUNT, MIXED_GANGS, lane.vc, turn) for one in job])

    turns.take(POD_TURNS, pods)
    turns.take(JOB_TURNS, jobs)
    other.clear()
    ours.clear()
    turns.take(MIXED_TURNS, backlog)
    return dict(turns.found)


def _idle_ms(pid: int) -> float:
    before = cpu_s(pid)
    time.sleep(SETTLED_S)
    return (cpu_s(pid) - before) / SETTLED_S * 1e3


class Found(NamedTuple):
    """A figure of both checkouts."""

    key: str
    other: float
    ours: float
    ratio: float
    noise: float

    @property
    def verdict(self) -> str:
        """Is ours at most 5 % larger?"""
        if self.ratio <= 1 + LIMIT:
            return "yes"
        return "unsure" if self.ratio <= 1 + LIMIT + self.noise else "no"


def compare(rounds: Sequence[Round]) -> list[Found]:
    """All figures of some rounds."""
    return [_compare(key, [each[key] for each in rounds]) for key in TITLES if key in rounds[0]]


def _compare(key: str, rounds: Sequence[list[tuple[float, float]]]) -> Found:
    def ratio_of(some: Sequence[list[tuple[float, float]]]) -> float:
        return median(ours / other for pairs in some for other, ours in pairs)

    draw, ratio = random.Random(0), ratio_of(rounds)

    def drawn_anew() -> float:
        return ratio_of([draw.choices(pairs, k=len(pairs)) for pairs in draw.choices(rounds, k=len(rounds))])

    noises = sorted(abs(drawn_anew() / ratio - 1) for _ in range(DRAWS))
    others, ours = (median(pair[i] for pairs in rounds for pair in pairs) for i in range(2))
    return Found(key, others, ours, ratio, noises[int(0.99 * DRAWS)])


def table(found: Sequence[Found]) -> str:
    """A line for each figure."""
    width = max(map(len, TITLES.values()))
    lines = [f"{'':{width}}{'other':>9}{'this':>9}{'ratio':>8}{'noise':>8}  within 5 %"]
    for each in found:
        numbers = f"{each.other:>9.4g}{each.ours:>9.4g}{each.ratio:>8.3f}{each.noise:>8.1%}"
        lines.append(f"{TITLES[each.key]:{width}}{numbers}  {each.verdict}")
    return "\n".join(lines)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.end_to_end", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--against", type=_checkout, default=ROOT, metavar="CHECKOUT",
        help="a folder with the other one; its .venv runs it if it has one [default: this one, which shows the noise]",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="3 or more [default: %(default)s]")
    parser.add_argument("--only", choices=("embedded", "real"), help="one kind of cluster; real needs `make e2e` once")
    parser.add_argument("--version", choices=VERSIONS, default=DEFAULT, help="of Kubernetes [default: %(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds")
    options = parser.parse_args(arguments)
    if options.rounds < 3:
        parser.error("--rounds: the spread of fewer than 3 says nothing")
    return options


def _checkout(text: str) -> Path:
    folder = Path(text).resolve()
    if not (folder / "pyproject.toml").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no checkout: it has no pyproject.toml")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    products = (options.against, ROOT)
    kinds: list[tuple[Cluster, ...]] = []
    try:
        kinds += [] if options.only == "real" else [tuple(map(Embedded, products))]
        kinds += [] if options.only == "embedded" else [tuple(Real(product, options.version) for product in products)]
    except ToolsMissing as missing:
        print(f"{missing}; `--only embedded` needs none of these programs", file=sys.stderr)
        return 3
    machine, found, rounds = describe_machine(), list[Found](), list[list[Round]]()
    for other, ours in kinds:
        rounds.append([])
        with other, ours:
            for number in range(options.rounds):
                began = time.monotonic()
                rounds[-1].append(measure(other, ours))
                name, seconds = type(ours).__name__, time.monotonic() - began
                print(f"{name}: round {number + 1} of {options.rounds}, {seconds:.0f} s", file=sys.stderr, flush=True)
        found += compare(rounds[-1])
    print("\n".join(f"{key}: {value}" for key, value in machine.items()), end="\n\n")
    print(table(found))
    if options.json:
        rows = [{**each._asdict(), "within": each.verdict} for each in found]
        report = {"machine": machine, "against": str(options.against), "figures": rows, "rounds": rounds}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(each.verdict == "no" for each in found))


if __name__ == "__main__":
    sys.exit(main())
