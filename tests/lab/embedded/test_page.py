"""docs/embedded.md says what there is."""

from hived_lab.embedded import nodes
from hived_lab.embedded.apiserver import server, store
from hived_lab.embedded.apiserver.resources import RESOURCES
from hived_lab.embedded.cluster import LIVELY
from hived_lab.embedded.scheduler import Pace
from tests.places import ROOT

PAGE = (ROOT / "docs" / "embedded.md").read_text()


def test_every_resource_is_listed_with_its_versions_and_subresources() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for resource in RESOURCES:
        own = [row for row in rows if row.split("`")[1] == resource.plural and resource.api_version in row]
        assert len(own) == 1, (resource.plural, resource.api_version)
        for sub in resource.subresources:
            assert f"`{sub.name}`" in own[0]


def test_every_annotation_is_explained() -> None:
    for key in (nodes.RUN_SECONDS, nodes.EXIT_CODE, nodes.STOP_SECONDS, nodes.READY):
        assert key in PAGE


def test_the_numbers_are_the_real_ones() -> None:
    text = " ".join(PAGE.split())
    timing, usual = nodes.Timing(), Pace()
    assert f"leases every {timing.heartbeat_s:g} s" in text
    assert f"its pods go after {timing.orphan_s:g} s" in text
    assert f"last {store.DEFAULT_HISTORY_LIMIT:,} changes" in text
    assert f"bookmarks every {server.DEFAULT_BOOKMARK_INTERVAL_S:g} s" in text
    assert server.DEFAULT_EVENT_TTL_S == 3600
    assert f"from {LIVELY.backoff_initial_s:g} s to {LIVELY.backoff_longest_s:g} s" in text
    assert f"after {LIVELY.flush_s:g} s" in text
    assert f"takes {usual.backoff_initial_s:g} s to {usual.backoff_longest_s:g} s" in text
    assert usual.flush_s == 300
