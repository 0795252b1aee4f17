"""The rows of the table on one cluster: all jobs are created, and then asked about, held, ended and deleted.

A step is taken with all jobs at once, since they wait at the same time. What is wrong with one is a sentence.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.kube.client import PODS, KubeClient, KubeError, pod_path
from hived_jobs.kinds import KINDS, PLANNERS
from hived_jobs.served import Served
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.expecting import PATIENCE_S
from tests.kinds.table import GANG, Json, Row

LOOK_S = 0.2
HELD_LATER = "is held once it waits again"
LIST = "List"


@dataclass
class Played:
    """The job of a row, created in one of its ways. `wrong` has what is wrong, by step."""

    row: Row
    way: str
    has_queues: bool = False
    is_made: bool = False
    """Has `hived submit` made its pods, since the cluster lacks its kind?"""
    skipped: str = ""
    wrong: dict[str, str] = field(default_factory=dict)
    called: str = ""

    def __post_init__(self) -> None:
        self.called = self.name

    def __str__(self) -> str:
        return f"{self.row.name}-{self.way}"

    @property
    def name(self) -> str:
        """A part of the names of all that belongs to it, and to no other.

        A name with queues is another one: Kubernetes may keep a PodGroup that was deleted for as long as it likes.
        """
        return f"{self.row.name}-{self.way[0]}{'q' * self.has_queues}"

    @property
    def queues(self) -> bool:
        """Does it wait in a queue of hived's?"""
        return self.has_queues and self.row.queues

    @property
    def state(self) -> str:
        """In which it is soon after it was created: a queue lets one start that was created suspended."""
        return "Running" if self.queues else self.row.state

    @property
    def pods(self) -> int:
        """How many it has in all."""
        return self.row.made_pods if self.is_made and self.row.made_pods else self.row.pods

    @property
    def job(self) -> str:
        """How hived calls it."""
        whole = GANG if self.is_made and self.row.is_gang else self.row.job
        if self.queues and whole.startswith(GANG):
            whole = f"{whole.replace('podgroup', 'Gang').replace('/w', '-w-*')}"
        return whole.format(self.name)

    def is_of(self, name: str) -> bool:
        """Is this how hived calls it?"""
        start, _, _ = self.job.partition("*")
        return name == self.job or ("*" in self.job and name.startswith(start))

    def has(self, item: Json) -> bool:
        """Is it the job of a row of lists?"""
        return any(self.name in each for each in (item["name"], *item.get("pods", ())))


Look = Callable[[Sequence[Played]], Mapping[str, str]]
"""What is wrong with each of some jobs, by the job."""


class Table:
    """The jobs of rows on a cluster.

    Parameters
    ----------
    kube : may do everything
    folder : for job files
    service : options by which commands find the service
    api : options by which they find the API server
    has_queues : do jobs wait in queues?
    patience_s : so long nothing has to change until a job is believed to be as it is
    """

    def __init__(
        self,
        kube: KubeClient,
        folder: Path,
        *,
        service: Sequence[str],
        api: Sequence[str],
        has_queues: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._kube, self._served, self._file = kube, Served(kube), folder / "job.yaml"
        self._service, self._api, self._patience_s, self._has_queues = service, api, patience_s, has_queues
        self.jobs: list[Played] = []

    def play(self, rows: Iterable[Row]) -> list[Played]:
        """Take all steps with the rows; the jobs, with what is wrong with each."""
        self._create(rows)
        there = [each for each in self.jobs if not each.wrong and not each.skipped]
        self._list("listed", there)
        self._explain(there)
        self._hold([each for each in there if each.way == "kubectl"])
        self._end([each for each in there if each.way == "submit" and each.row.ends])
        self._delete(there)
        return self.jobs

    def clean(self) -> None:
        """Delete what is left of all."""
        for each in self.jobs:
            for one in _items(each.row.make(each.name)):
                name = one.get("metadata", {}).get("name", each.called)
                with suppress(KubeError, AssertionError):  # of another kind, or gone
                    path = self._served.path(one["apiVersion"], one["kind"], "default")
                    self._kube.delete(f"{path}/{name}", with_dependents=True)

    # -- creating

    def _create(self, rows: Iterable[Row]) -> None:
        for each in (Played(row, way, self._has_queues) for row in rows for way in row.ways):
            self.jobs.append(each)
            objects = each.row.make(each.name)
            lacks = [one for one in objects if not self._is_served(one)]
            if any(each.way == "kubectl" or not _is_planned(one) for one in lacks):
                each.skipped = f"the cluster has no {lacks[0].get('kind')} ({lacks[0].get('apiVersion')})"
                continue
            each.is_made = bool(lacks)
            (self._submit if each.way == "submit" else self._apply)(each, objects)

    def _is_served(self, manifest: Json) -> bool:
        version, kind = manifest.get("apiVersion", ""), manifest.get("kind", "")
        return kind == LIST or (bool(version) and self._served.find(version, kind) is not None)

    def _submit(self, each: Played, objects: Sequence[Json]) -> None:
        self._file.write_text(yaml.safe_dump_all(objects))
        result = self._run("submit", str(self._file), "--user", "me")
        if result.exit_code:
            each.wrong["created"] = result.output

    def _apply(self, each: Played, objects: Sequence[Json]) -> None:
        uids: dict[str, str] = {}
        try:
            for one in _items(objects):
                for owner in one["metadata"].get("ownerReferences", ()):
                    owner.setdefault("uid", uids.get(owner["name"], ""))
                created = self._kube.create(self._served.path(one["apiVersion"], one["kind"], "default"), one)
                uids[created["metadata"]["name"]] = created["metadata"]["uid"]
        except KubeError as error:
            each.wrong["created"] = str(error)

    # -- the steps

    def _list(self, step: str, some: Sequence[Played], state: str = "") -> None:
        """Each is one row, with its counts."""

        def look(left: Sequence[Played]) -> dict[str, str]:
            items = self._items()
            return {str(each): _row_fault(each, state or each.state, items) for each in left}

        self._until(step, some, look)

    def _explain(self, some: Iterable[Played]) -> None:
        """Its short name is enough for `get jobs` and `why`."""
        for each in some:
            found = [one["name"] for one in self._items(each.called)]
            told = self._ask("why", each.called).output
            first = told.partition("\n")[0]
            if len(found) != 1 or not each.is_of(found[0]):
                each.wrong["explained"] = f"hived get jobs {each.called}: {found}"
            elif not first.startswith(f"{found[0]} ") or each.state not in first:
                each.wrong["explained"] = told

    def _hold(self, some: Iterable[Played]) -> None:
        """It is held and released, or a sentence says why not."""
        held = []
        for each in some:
            told = self._run("hold", each.called, "--yes")
            if each.queues:
                if HELD_LATER not in told.output or self._run("release", each.called).exit_code:
                    each.wrong["held"] = told.output
            elif each.row.stays:
                if told.exit_code != 1 or each.row.stays not in told.output:
                    each.wrong["held"] = told.output
            elif told.exit_code:
                each.wrong["held"] = told.output
            else:
                held.append(each)
        self._list("held", held, "Held")
        for each in held:
            told = self._run("release", each.called)
            if told.exit_code:
                each.wrong.setdefault("held", told.output)
        self._list("released", [each for each in held if "held" not in each.wrong], "Running")

    def _end(self, some: Sequence[Played]) -> None:
        """It is in the list of those that have ended, and in no other."""
        for each in some:
            if each.state == "Held":
                self._run("release", each.called)

        def look(left: Sequence[Played]) -> dict[str, str]:
            self._end_pods(left)
            ended, others = self._items("--ended"), self._items()
            return {str(each): _end_fault(each, ended, others) for each in left}

        self._until("ended", some, look)
        for each in some:
            told = self._ask("why", each.called).output
            if "ended" not in each.wrong and "Completed" not in told.partition("\n")[0]:
                each.wrong["ended"] = told

    def _end_pods(self, some: Sequence[Played]) -> None:
        for one in self._pods():
            name, is_told = one["metadata"]["name"], RUN_SECONDS in one["metadata"].get("annotations", {})
            if one["status"].get("phase") == "Running" and not is_told and any(each.name in name for each in some):
                with suppress(KubeError):  # it may be gone
                    self._kube.patch(pod_path("default", name), {"metadata": {"annotations": {RUN_SECONDS: "0"}}})

    def _delete(self, some: Sequence[Played]) -> None:
        """It goes with all of its pods, and none comes again."""
        for each in some:
            told = self._run("delete", each.called, "--yes")
            if told.exit_code or ("Warning" in told.output) != each.row.warns:
                each.wrong["deleted"] = told.output

        def look(left: Sequence[Played]) -> dict[str, str]:
            pods, items = [one["metadata"]["name"] for one in self._pods()], self._items()
            found = {}
            for each in left:
                there = [name for name in pods if each.name in name]
                there += [one["name"] for one in items if each.has(one)]
                found[str(each)] = f"left: {there}" if there else ""
            return found

        self._until("deleted", [each for each in some if "deleted" not in each.wrong], look)

    # -- questions

    def _until(self, step: str, some: Sequence[Played], look: Look) -> None:
        """Look until nothing is wrong with any job, or nothing has changed for so long."""
        left, before, until = list(some), dict[str, str](), time.monotonic() + self._patience_s
        while left:
            found = dict(look(left))
            left = [each for each in left if found[str(each)]]
            if found != before:
                before, until = found, time.monotonic() + self._patience_s
            if time.monotonic() > until:
                break
            time.sleep(LOOK_S)
        for each in left:
            each.wrong[step] = before[str(each)]

    def _items(self, *words: str) -> list[Json]:
        items: list[Json] = json.loads(self._ask("get", "jobs", *words, "-o", "json").stdout)["items"]
        return items

    def _pods(self) -> list[Json]:
        return self._kube.list_objects(PODS, dict).items

    def _ask(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, *self._service])

    def _run(self, *words: str) -> Result:
        return self._ask(*words, *self._api)


def _items(objects: Iterable[Json]) -> list[Json]:
    return [item for one in objects if "kind" in one for item in (one["items"] if one["kind"] == LIST else [one])]


def _is_planned(manifest: Json) -> bool:
    """Does `hived submit` make the pods of such an object where a cluster lacks its kind?"""
    version, kind = manifest.get("apiVersion", ""), manifest.get("kind", "")
    return "protocolVersion" in manifest or ((version, kind) in PLANNERS and kind not in KINDS.get(version, ()))


def _row_fault(each: Played, state: str, items: Sequence[Json]) -> str:
    mine = [one for one in items if each.has(one)]
    if len(mine) != 1 or not each.is_of(mine[0]["name"]):
        return f"rows {[(one['name'], one['state']) for one in mine]}, not {each.job}"
    [one] = mine
    if "*" in each.job:
        each.called = one["name"].rpartition("/")[2]
    wanted = {"wanted": each.pods, **({"running": each.row.at_once or each.pods} if state == "Running" else {})}
    counts = {key: value for key, value in one.get("counts", {}).items() if value}
    is_right = one["state"] == state and (counts == wanted or state == "Held")
    return "" if is_right else f"{one['state']} {counts}, not {state} {wanted}"


def _end_fault(each: Played, ended: Sequence[Json], others: Sequence[Json]) -> str:
    over = [(one["name"], one["state"]) for one in ended if each.has(one)]
    left = [(one["name"], one["state"]) for one in others if each.has(one)]
    is_right = len(over) == 1 and each.is_of(over[0][0]) and over[0][1] == "Completed" and not left
    return "" if is_right else f"ended: {over}, not ended: {left}"
