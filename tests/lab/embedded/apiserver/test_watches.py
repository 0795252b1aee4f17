"""Watches over real sockets: what is told, in which order, and how a watch ends."""

import asyncio
import resource
import time

import pytest

from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.apiserver.store import Store, Watch
from tests.expecting import PATIENCE_S
from tests.lab.embedded.helpers import TABLE, Http, api_server, config_map, pod


def version_of(http: Http, path: str) -> str:
    return http.ok("GET", path)["metadata"]["resourceVersion"]


def test_a_watch_from_a_version_tells_every_change_after_it(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("before"))
    start = version_of(http, config_maps)
    http.ok("POST", config_maps, config_map("one"))
    with http.watch(config_maps, resourceVersion=start) as watch:
        http.patch(f"{config_maps}/one", {"data": {"a": "b"}})
        http.ok("DELETE", f"{config_maps}/one")
        events = [watch.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[1]["object"]["data"] == {"a": "b"}


@pytest.mark.parametrize("version", [None, "0"])
def test_a_watch_from_nowhere_begins_with_what_exists(http: Http, config_maps: str, version: str | None) -> None:
    http.ok("POST", config_maps, config_map("one"))
    parameters = {} if version is None else {"resourceVersion": version}
    with http.watch(config_maps, **parameters) as watch:
        assert watch.names(1) == [("ADDED", "one")]
        http.ok("POST", config_maps, config_map("two"))
        assert watch.names(1) == [("ADDED", "two")]


def test_a_watch_sees_only_its_namespace(http: Http, config_maps: str, namespace: str) -> None:
    with http.watch(config_maps, resourceVersion=version_of(http, config_maps)) as watch:
        http.ok("POST", "/api/v1/namespaces/default/configmaps", config_map(f"other-{namespace}"))
        http.ok("POST", config_maps, config_map("mine"))
        assert watch.names(1) == [("ADDED", "mine")]


def test_an_object_enters_and_leaves_a_selection(http: Http, config_maps: str) -> None:
    start = version_of(http, config_maps)
    with http.watch(config_maps, resourceVersion=start, labelSelector="in=yes") as watch:
        http.ok("POST", config_maps, config_map("one"))
        http.patch(f"{config_maps}/one", {"metadata": {"labels": {"in": "yes"}}})
        http.patch(f"{config_maps}/one", {"data": {"a": "b"}})
        http.patch(f"{config_maps}/one", {"metadata": {"labels": {"in": "no"}}})
        http.ok("DELETE", f"{config_maps}/one")
        http.ok("POST", config_maps, config_map("two", {"in": "yes"}))
        seen = watch.names(4)
    assert seen == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "two")]


def test_a_pod_that_completes_leaves_the_selection_of_live_pods(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    live = "status.phase!=Succeeded,status.phase!=Failed"
    with http.watch(pods, resourceVersion=version_of(http, pods), fieldSelector=live) as watch:
        http.patch(f"{pods}/one/status", {"status": {"phase": "Succeeded"}})
        assert watch.names(1) == [("DELETED", "one")]


def test_bookmarks_tell_how_far_the_server_is(http: Http, config_maps: str, pods: str) -> None:
    start = version_of(http, config_maps)
    elsewhere = http.ok("POST", pods, pod("elsewhere"))["metadata"]["resourceVersion"]
    with http.watch(config_maps, resourceVersion=start, allowWatchBookmarks="true") as watch:
        bookmark = watch.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(elsewhere)
    with http.watch(config_maps, resourceVersion=bookmark["object"]["metadata"]["resourceVersion"]) as watch:
        http.ok("POST", config_maps, config_map("one"))
        assert watch.names(1) == [("ADDED", "one")]


def test_without_being_asked_for_there_are_no_bookmarks(http: Http, config_maps: str) -> None:
    with http.watch(config_maps, resourceVersion=version_of(http, config_maps), timeoutSeconds=1) as watch:
        assert watch.rest() == []


def test_a_watch_ends_after_its_time_with_a_last_bookmark(http: Http, config_maps: str) -> None:
    began = time.monotonic()
    start = version_of(http, config_maps)
    with http.watch(config_maps, resourceVersion=start, timeoutSeconds=1, allowWatchBookmarks="true") as watch:
        events = watch.rest()
    assert 0.9 < time.monotonic() - began < PATIENCE_S / 2
    assert {event["type"] for event in events} == {"BOOKMARK"}


def test_a_streaming_list_says_where_it_ends(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one"))
    parameters = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with http.watch(config_maps, **parameters) as watch:
        assert watch.names(1) == [("ADDED", "one")]
        end = watch.next()
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_table_can_be_watched(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    with http.watch(pods, headers={"Accept": TABLE}) as watch:
        http.patch(f"{pods}/one", {"metadata": {"labels": {"a": "b"}}})
        first, second = watch.next(), watch.next()
    assert (first["type"], second["type"]) == ("ADDED", "MODIFIED")
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]
    assert second["object"]["rows"][0]["cells"][0] == "one"


def test_events_can_be_watched_in_their_new_group(http: Http, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    with http.watch(path, resourceVersion=version_of(http, path)) as watch:
        about = {"kind": "Pod", "namespace": namespace, "name": "one"}
        http.ok("POST", path, {"metadata": {"name": "e"}, "regarding": about, "note": "hello"})
        assert watch.next()["object"]["note"] == "hello"


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def outlive_history(http: Http) -> str:
    """Return a version that the history of five changes no longer reaches."""
    start = version_of(http, CONFIG_MAPS)
    for number in range(7):
        http.ok("POST", CONFIG_MAPS, config_map(f"c{number}"))
    return start


def test_a_watch_of_an_expired_version_is_an_error_event() -> None:
    with api_server(history_limit=5) as server:
        http = Http(server.port)
        with http.watch(CONFIG_MAPS, resourceVersion=outlive_history(http), allowWatchBookmarks="true") as watch:
            assert watch.response.status == 200
            (event,) = watch.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["kind"], event["object"]["code"], event["object"]["reason"]) == ("Status", 410, "Expired")


def test_a_version_that_the_history_just_reaches_can_be_watched() -> None:
    with api_server(history_limit=5) as server:
        http = Http(server.port)
        versions = [
            http.ok("POST", CONFIG_MAPS, config_map(f"c{number}"))["metadata"]["resourceVersion"] for number in range(6)
        ]
        with http.watch(CONFIG_MAPS, resourceVersion=versions[0]) as watch:
            assert [name for _, name in watch.names(5)] == ["c1", "c2", "c3", "c4", "c5"]


def test_changes_elsewhere_do_not_expire_a_watch() -> None:
    with api_server(history_limit=5) as server:
        http = Http(server.port)
        start = version_of(http, CONFIG_MAPS)
        for number in range(20):
            http.ok("POST", "/api/v1/namespaces/default/pods", pod(f"p{number}"))
        http.ok("POST", CONFIG_MAPS, config_map("one"))
        with http.watch(CONFIG_MAPS, resourceVersion=start) as watch:
            assert watch.names(1) == [("ADDED", "one")]


def test_a_version_from_before_a_restart_has_expired_on_the_same_port() -> None:
    with api_server() as first:
        port = first.port
        start = version_of(Http(port), CONFIG_MAPS)
    with api_server(port=port), Http(port).watch(CONFIG_MAPS, resourceVersion=start) as watch:
        (event,) = watch.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_the_server_stops_though_somebody_watches() -> None:
    with api_server() as server:
        http = Http(server.port)
        with http.watch(CONFIG_MAPS, resourceVersion=version_of(http, CONFIG_MAPS)) as watch:
            began = time.monotonic()
            server.stop()
            assert watch.rest() == []
            assert time.monotonic() - began < PATIENCE_S / 2


def test_a_server_without_an_event_loop_does_not_start() -> None:
    server = ApiServer()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.stop()


def test_a_client_that_leaves_as_something_changes_ends_its_watch() -> None:
    async def scenario() -> bool:
        store = Store(1)
        collection = store.collection("one")
        watch = Watch(
            collection=collection,
            version=1,
            current_version=lambda: store.version,
            initial=b"",
            accepts=lambda _: True,
            render=lambda *_: b"a line",
            timeout_s=60,
            bookmark=None,
            bookmark_interval_s=60,
            ends_initial_list=False,
            is_stopping=lambda: False,
        )
        telling = asyncio.ensure_future(anext(watch.chunks()))
        await asyncio.sleep(0)
        store.wake_all()
        telling.cancel()
        await asyncio.wait([telling], timeout=PATIENCE_S)
        return telling.cancelled()

    assert asyncio.run(scenario())
