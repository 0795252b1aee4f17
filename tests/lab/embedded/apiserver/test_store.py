"""The store against its obvious version: a full copy of everything at every version."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import ApiError, view_of
from hived_lab.embedded.apiserver.models import View
from hived_lab.embedded.apiserver.store import ChangeType, Collection, Key, Store

FIRST_VERSION = 100


def read(body: dict[str, Any]) -> View:
    return view_of(body, models.ConfigMap)


def put(store: Store, collection: Collection, name: str, **data: str) -> None:
    key = Key("ns", name)
    store.put(collection, store.revise(key, {"metadata": {"name": name}, "data": data}, read))


def remove(store: Store, collection: Collection, name: str) -> None:
    key = Key("ns", name)
    store.remove(collection, store.revise(key, collection.revisions[key].body, read))


def contents(objects: dict[Key, Any]) -> dict[str, Any]:
    return {key.name: revision.body["data"] for key, revision in objects.items()}


names = st.sampled_from("abcd")
steps = st.lists(st.tuples(st.sampled_from(["put", "put", "remove", "elsewhere"]), names, st.sampled_from("xyz")))


@given(steps=steps, history_limit=st.integers(1, 8))
def test_every_version_that_is_not_expired_can_be_rebuilt(
    steps: list[tuple[str, str, str]], history_limit: int
) -> None:
    store = Store(FIRST_VERSION, history_limit)
    collection, other = store.collection("one"), store.collection("other")
    copies = {FIRST_VERSION: {}}
    for step, name, value in steps:
        if step == "elsewhere":
            put(store, other, name)
        elif step == "put":
            put(store, collection, name, v=value)
        elif Key("ns", name) in collection.revisions:
            remove(store, collection, name)
        copies[store.version] = contents(collection.revisions)
    for version, copied in copies.items():
        if version < collection.compacted:
            with pytest.raises(ApiError):
                collection.snapshot(version)
        else:
            assert contents(collection.snapshot(version)) == copied


@given(steps=steps, history_limit=st.integers(1, 8))
def test_replaying_the_changes_after_a_version_leads_to_the_present(
    steps: list[tuple[str, str, str]], history_limit: int
) -> None:
    store = Store(FIRST_VERSION, history_limit)
    collection = store.collection("one")
    for step, name, value in steps:
        if step == "put":
            put(store, collection, name, v=value)
        elif Key("ns", name) in collection.revisions:
            remove(store, collection, name)
    for version in range(collection.compacted, store.version + 1):
        seen = contents(collection.snapshot(version))
        for change in collection.changes_since(version):
            name = change.after.key.name
            assert (name in seen) == (change.type is not ChangeType.ADDED)
            if change.type is ChangeType.DELETED:
                del seen[name]
            else:
                seen[name] = change.after.body["data"]
        assert seen == contents(collection.revisions)


def test_the_history_never_exceeds_its_limit() -> None:
    store = Store(FIRST_VERSION, history_limit=3)
    collection = store.collection("one")
    for number in range(10):
        put(store, collection, "a", v=str(number))
    assert len(collection.history) == 3
    assert collection.compacted == store.version - 3


def test_a_line_of_a_watch_is_encoded_once() -> None:
    store = Store(FIRST_VERSION)
    collection = store.collection("one")
    put(store, collection, "a")
    (change,) = collection.changes_since(FIRST_VERSION)
    assert change.frame(ChangeType.ADDED) is change.frame(ChangeType.ADDED)


def test_storing_leaves_the_body_as_it_was() -> None:
    store, body = Store(FIRST_VERSION), {"metadata": {"name": "a"}}
    store.put(store.collection("one"), store.revise(Key("", "a"), body, read))
    assert body == {"metadata": {"name": "a"}}


def test_waiting_misses_nothing_after_it_was_asked_for() -> None:
    async def scenario() -> bool:
        store = Store(FIRST_VERSION)
        collection = store.collection("one")
        waiting = asyncio.ensure_future(collection.next_change())
        put(store, collection, "a")
        await asyncio.wait([waiting], timeout=60)
        return waiting.done()

    assert asyncio.run(scenario())
