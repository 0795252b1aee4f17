"""The stored version and the one in force stay the same, whatever happens between the commit and the switch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import InvariantError, UserError
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.reconfiguration import stores, versions
from hived_extender.reconfiguration.configurations import Refused
from hived_extender.reconfiguration.stores import ConfigMapStore, FileStore, Snapshot, file_origin
from hived_extender.reconfiguration.versions import KEPT, SIZE_LIMIT, TEXT_KEY, Stored, with_version
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text
from tests.extender.reconfiguration.test_versions import noise
from tests.extender.stored_config import FIRST, api_server, begun, configurations_of

WITHOUT_A = CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]")


class Disturbed(ConfigMapStore):
    """`after_commit` is called once, after the next commit, as if it happened before anything else can."""

    after_commit: Callable[[], None] | None = None

    def commit(self, snapshot: Snapshot, stored: Stored) -> Snapshot:
        done = super().commit(snapshot, stored)
        disturb, self.after_commit = self.after_commit, None
        if disturb is not None:
            disturb()
        return done


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "UNKNOWN_WAIT_S", 0.01)


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeClient]:
    with api_server() as client:
        yield client


@pytest.fixture
def store(kube: KubeClient) -> Disturbed:
    return begun(Disturbed(kube, "kube-system", "hived-config", Metrics()))


def edit(store: ConfigMapStore, **data: str) -> None:
    """As kubectl does: `note` is an annotation, `text` the configuration."""
    found: dict[str, Any] = dict(store.read().object)
    notes = found["metadata"].get("annotations") or {}
    found["metadata"]["annotations"] = notes | ({"note": data["note"]} if "note" in data else {})
    found["data"] = found["data"] | ({TEXT_KEY: data["text"]} if "text" in data else {})
    store._kube.replace(store._path, found)


@pytest.mark.parametrize("edited", ["", CONFIG + "# by hand\n"], ids=["annotated", "edited"])
def test_what_is_not_switched_to_is_withdrawn_although_the_object_has_changed(store: Disturbed, edited: str) -> None:
    """Rule 33.3."""
    small = SmallCluster()
    one = configurations_of(small.service, store)

    def disturb() -> None:
        small.place("p", spec_text("a"))
        edit(store, note="x", **({"text": edited} if edited else {}))

    store.after_commit = disturb
    with pytest.raises(Refused, match="ns/p would be lazilyPreempted now"):
        one.push(ConfigPushArgs(WITHOUT_A))
    stored = store.read().stored
    assert (stored.versions, stored.text) == ((FIRST,), edited or CONFIG)
    assert store.read().object["metadata"]["annotations"]["note"] == "x"


def test_who_cannot_have_it_withdrawn_is_told_that_it_may_come(
    store: Disturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallCluster()
    one = configurations_of(small.service, store)

    def disturb() -> None:
        small.place("p", spec_text("a"))

        def refuse(*_: object) -> None:
            raise KubeError(500, "InternalError", "no room")

        monkeypatch.setattr(store._kube, "replace", refuse)

    store.after_commit = disturb
    with pytest.raises(UserError, match="version 2 is stored and could not be taken back") as raised:
        one.push(ConfigPushArgs(WITHOUT_A))
    assert raised.value.code == 503
    assert not isinstance(raised.value, Refused)


def test_a_version_that_stops_the_service_is_not_what_it_begins_with_anew(
    store: Disturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SmallCluster()
    one = configurations_of(small.service, store)

    def break_down(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(small.service.machine.terms, "switched", break_down)
    with pytest.raises(InvariantError, match="a fault of ours"):
        one.push(ConfigPushArgs(WITHOUT_A))
    assert small.service.fault
    assert store.read().stored == Stored(CONFIG, (FIRST,))


def test_an_edited_text_locks_nobody_out_who_has_come_after_the_last_look(store: Disturbed) -> None:
    small = SmallCluster()
    one = configurations_of(small.service, store)
    edit(store, text=WITHOUT_A)
    store.after_commit = lambda: small.place("p", spec_text("a")) and None
    assert not one._look()
    assert small.state.groups["ns/p"].virtual is not None
    assert one._look()
    stored = store.read().stored
    assert (stored.versions, one.in_force) == ((FIRST,), FIRST)
    assert stored.refused is not None
    assert "config-allow-downgrade=true" in stored.refused.reason


def test_a_refusal_that_there_is_no_room_for_is_not_tried_again(store: Disturbed) -> None:
    small = SmallCluster()
    one = configurations_of(small.service, store)
    edit(store, text="#" * SIZE_LIMIT)
    for _ in range(3):
        assert one._look()
    assert small.service.metrics.config_changes.labels("refused")._value.get() == 1
    assert store.read().stored.refused is None


def test_a_write_without_an_answer_that_has_happened_is_found_out_also_when_old_versions_went(
    store: Disturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SIZE_LIMIT", SIZE_LIMIT // 20)
    stored = Stored("")
    for number in range(KEPT):
        stored = with_version(stored, noise(3_000, number), who="", when="", why="")
    snapshot = store.commit(store.read(), stored)
    replace_object = store._kube.replace

    def unanswered(path: str, body: dict[str, Any]) -> dict[str, Any]:
        replace_object(path, body)
        raise KubeError(0, "NoAnswer", "gone")

    monkeypatch.setattr(store._kube, "replace", unanswered)
    text = noise(3_000, KEPT)
    after = store.commit(snapshot, with_version(snapshot.stored, text, who="", when="", why=""))
    assert after.stored.newest is not None
    assert (after.stored.newest.version, after.stored.text) == (KEPT + 1, text)
    assert len(after.stored.versions) < KEPT


def test_a_file_is_remembered_in_as_many_versions_as_a_config_map(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    one = configurations_of(SmallCluster().service, FileStore(file))
    for number in range(KEPT + 3):
        file.write_text(CONFIG + f"# {number}\n")
        assert one._look()
    assert [version.version for version in one.versions()] == list(range(KEPT + 4, 4, -1))


def test_a_file_that_is_written_while_it_is_read_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    read = Path.open

    def written(path: Path, *args: Any, **more: Any) -> Any:
        found = read(path, *args, **more)
        monkeypatch.undo()
        file.rename(tmp_path / "old")
        file.write_text(CONFIG + "# other\n")
        return found

    monkeypatch.setattr(Path, "open", written)
    origin = file_origin(file)
    assert origin.version.text == CONFIG
    assert origin.store.read().stored.text != origin.version.text
