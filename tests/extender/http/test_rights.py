"""The page has the rights of every path, and no path says no name that a caller may not know."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.configuration import ConfigReport, ReportedGroups, ReportedJob
from hived_extender.api.waiting import MASKED
from hived_extender.http import access
from hived_extender.http.access import Gate
from hived_extender.http.answers import Identity, Question
from hived_extender.http.change_rights import OF_A_FILE, ConfigPushes, RememberedRights
from hived_extender.http.masking import Mask, Masking
from hived_extender.http.routes import ROUTES, answer
from hived_extender.http.routing import Backend, rights_table
from hived_extender.kube.client import KubeError
from hived_extender.reconfiguration.stores import FileStore
from tests.extender.machine.small_cluster import SmallCluster, spec_text
from tests.extender.stored_config import configurations_of

ROOT = Path(__file__).parents[3]
ANN = Identity("ann", (), "", ())


class Viewing(Gate):
    """Ann sees the pods of some namespaces, "" for all."""

    def __init__(self, *allowed: str) -> None:
        super().__init__()
        self._allowed = allowed

    @property
    def knows_callers(self) -> bool:
        return True

    def may_do(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        return resource["resource"] == "pods" and resource.get("namespace", "") in self._allowed


def backend_of(*allowed: str) -> Backend:
    """Two jobs of the namespace "ns", one that runs and one that waits."""
    cluster = SmallCluster()
    cluster.place("secret-run", spec_text("a", group="secret-gang", pods=1))
    cluster.create("secret-wait", spec_text("b", leaf_cells=4, priority=3))
    return Backend(cluster.service, masking=Masking(Viewing(*allowed)))


def text_of(backend: Backend, path: str, name: str = "") -> tuple[int, str]:
    """A GET of this path by Ann."""
    route = next(each for each in ROUTES if (each.method, each.path) == ("GET", path))
    found = answer(route.handler, backend, Question(caller=ANN, name=name))
    body = found.body if isinstance(found.body, bytes) else b"".join(found.body)
    return found.status, body.decode()


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert rights_table(ROUTES) in page, "bring docs/security.md up to date: rights_table(ROUTES)"


GROUP_PATHS = [(paths.GROUPS_PATH, ""), (f"{paths.GROUPS_PATH}{{name}}", "ns:secret-gang")]
CELL_PATHS = [(path, "") for path in (paths.CLUSTER_PATH, paths.PHYSICAL_CLUSTER_PATH, paths.VIRTUAL_CLUSTERS_PATH)]
OTHER_PATHS = [(path, "") for path in (paths.DEVICES_PATH, paths.SHORTAGES_PATH, paths.RULES_PATH, paths.METRICS_PATH)]


@pytest.mark.parametrize(("path", "name"), [*GROUP_PATHS, *CELL_PATHS, *OTHER_PATHS, (paths.RECORD_PATH, "")])
def test_a_viewer_of_another_namespace_reads_no_name(path: str, name: str) -> None:
    _, text = text_of(backend_of("another"), path, name)
    assert "secret" not in text.replace("ns:secret-gang", "")


def test_the_cells_of_a_hidden_group_are_shown() -> None:
    status, text = text_of(backend_of("another"), paths.GROUPS_PATH)
    (group,) = json.loads(text)["items"]
    assert (status, group["metadata"]["name"], group["status"]["vc"]) == (200, MASKED, "a")
    assert group["status"]["physicalPlacement"]
    assert "allocatedPods" not in group["status"]


@pytest.mark.parametrize("allowed", ["ns", ""])
def test_those_who_may_get_its_pods_read_the_name_of_a_group(allowed: str) -> None:
    assert "ns:secret-gang" in text_of(backend_of(allowed), paths.GROUPS_PATH)[1]
    assert text_of(backend_of(allowed), f"{paths.GROUPS_PATH}{{name}}", "secret-gang")[0] == 200


def test_a_hidden_group_is_answered_like_one_that_does_not_exist() -> None:
    hidden = text_of(backend_of("another"), f"{paths.GROUPS_PATH}{{name}}", "ns:secret-gang")
    other = text_of(backend_of("another"), f"{paths.GROUPS_PATH}{{name}}", "ns:nothing")
    assert hidden == (other[0], other[1].replace("ns:nothing", "ns:secret-gang"))


@pytest.mark.parametrize("path", [paths.INPUTS_PATH])
def test_answers_with_all_names_are_for_those_who_may_get_all_pods(path: str) -> None:
    status, text = text_of(backend_of("ns"), path)
    assert status == 403
    assert "this needs a role that allows 'get' on all pods" in text


def test_a_plan_names_no_job_that_is_hidden() -> None:
    mine = ReportedJob("cv/mine", pods=["cv/mine"], reason="waits for nlp/theirs")
    theirs = ReportedJob("nlp/theirs", pods=["nlp/theirs"], verdict="unaccounted", reason="nlp/theirs loses")
    report = ConfigReport(
        refusals=["group nlp/theirs would lose cells"], groups=ReportedGroups(1, [theirs, mine]), waiting=[theirs]
    )
    masked: ConfigReport = Mask(Masking(Viewing("cv")), ANN).report(report)
    assert "theirs" not in repr(masked)
    assert [job.name for job in masked.groups.affected] == [MASKED, "cv/mine"]
    assert masked.groups.affected[0].verdict == "unaccounted"
    assert Mask(Masking(Viewing("")), ANN).report(report) == report


def test_a_plan_names_no_queued_job_that_is_hidden() -> None:
    said = "virtual clusters go: these jobs that wait stay held (3): {}, Job/nlp/secret.1, PyTorchJob/nlp/secret-2"
    report = ConfigReport(warnings=[said.format("Job/cv/mine")], refusals=["Job/nlp/secret"])
    masked = Mask(Masking(Viewing("cv")), ANN).report(report)
    assert "secret" not in repr(masked)
    assert masked.warnings == [f"{said.partition('{')[0]}Job/cv/mine, {MASKED}, {MASKED}"]
    assert Mask(Masking(Viewing("")), ANN).report(report) == report


@pytest.mark.parametrize("is_allowed", [True, False])
def test_where_the_configuration_is_a_file_changes_take_a_right_of_their_own(is_allowed: bool, tmp_path: Path) -> None:
    """Else every viewer could move its own jobs to the front of their queue."""
    asked: list[Mapping[str, str]] = []

    def may_do(caller: Identity, resource: Mapping[str, str]) -> bool:
        asked.append(resource)
        return is_allowed

    service = SmallCluster().service
    store = FileStore(tmp_path / "hivedscheduler.yaml")
    pushes = ConfigPushes(configurations_of(service, store), may_do, is_private=False)
    if is_allowed:
        assert pushes.name_of(ANN) == "ann"
    else:
        with pytest.raises(Exception, match="ann may not push: no role of theirs allows 'update'"):
            pushes.name_of(ANN)
    assert asked == [{"verb": "update", **OF_A_FILE}]


class Rights:
    """Answers of the API server, which are counted; `now` is the time of what is remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed, self.asked, self.now = True, 0, 100.0
        monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: self.now))

    def __call__(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        self.asked += 1
        return self.allowed


@pytest.mark.parametrize(("allowed", "seconds"), [(True, 10.0), (False, 2.0)])
def test_a_right_that_pages_show_is_obeyed_within_seconds_once_it_is_another(
    allowed: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = Rights(monkeypatch)
    shown, rights.allowed = RememberedRights(rights), allowed
    assert [shown(ANN, OF_A_FILE) for _ in range(5)] == [allowed] * 5
    assert rights.asked == 1
    rights.allowed = not allowed
    rights.now += seconds - 0.1
    assert shown(ANN, OF_A_FILE) is allowed
    rights.now += 0.2
    assert shown(ANN, OF_A_FILE) is not allowed


def test_rights_are_remembered_by_caller_and_object_and_not_while_the_api_server_fails() -> None:
    asked: list[tuple[str, str]] = []

    def may_do(caller: Identity, resource: Mapping[str, str]) -> bool:
        asked.append((caller.name, resource["name"]))
        if caller.name == "lost":
            raise KubeError(0, "NoAnswer", "timed out")
        return (caller.name, resource["name"]) == ("ann", "one")

    shown = RememberedRights(may_do)
    callers = [ANN, Identity("bob"), Identity("ann", ("others",))]
    found = [shown(caller, {"name": name}) for _ in range(3) for caller in callers for name in ("one", "two")]
    assert found == [True, False, False, False, True, False] * 3
    assert len(asked) == 6
    for _ in range(2):
        with pytest.raises(KubeError):
            shown(Identity("lost"), {"name": "one"})
    assert len(asked) == 8


def test_few_rights_are_remembered_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REMEMBERED_COUNT", 2)
    rights = Rights(monkeypatch)
    shown = RememberedRights(rights)
    for name in ("0", "1", "2", "2", "1", "0"):
        shown(ANN, {"name": name})
    assert rights.asked == 4


def test_a_change_is_asked_about_anew_whatever_pages_remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rights = Rights(monkeypatch)
    store = FileStore(tmp_path / "hivedscheduler.yaml")
    pushes = ConfigPushes(configurations_of(SmallCluster().service, store), rights, is_private=False)
    assert [pushes.shown.name_of(ANN) for _ in range(5)] == ["ann"] * 5
    assert rights.asked == 1
    rights.allowed = False
    with pytest.raises(UserError, match="ann may not push"):
        pushes.name_of(ANN)
    assert pushes.shown.name_of(ANN) == "ann"


def test_the_record_is_for_those_who_may_get_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backend_of("ns")
    monkeypatch.setattr(type(backend.service), "record", property(lambda service: "/nowhere/run"))
    status, text = text_of(backend, paths.RECORD_PATH)
    assert status == 403
    assert "this needs a role that allows 'get' on all pods" in text
