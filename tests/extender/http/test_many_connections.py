"""A service with more connections than `select` can watch answers every question, those in other processes too."""

import json
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from hived_extender.api.paths import HEALTH_PATH
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender import replica
from tests.extender.machine.small_cluster import CONFIG, cluster_spec, spec_text, wait_until

CONNECTIONS = 2000
PER_ADDRESS = 250
NOT_FOUND = 404
FILES = 2 * CONNECTIONS + 1000
"""Both ends of each connection are in this process."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")


@contextmanager
def many_files() -> Iterator[None]:
    """Skips the test where a process may not open that many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"a process may open {hard} files here, and {FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
def test_why_is_answered_beside_two_thousand_connections(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    with many_files(), ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(cluster_spec()))
        kube = stack.enter_context(closing(replica.connect(cluster)))
        extender = stack.enter_context(replica.start(config, cluster))
        assert extender.wait_ready(replica.DEADLINE_S)
        replica.place(extender, replica.create_pod(kube, "holder", spec_text("b", leaf_cells=4)))
        names = [f"full-{number}" for number in range(10)]
        for name in names:
            replica.create_pod(kube, name, spec_text("b", leaf_cells=4, group=name))
        port = urlsplit(extender.url).port
        for number in range(CONNECTIONS):
            source = f"127.0.1.{1 + number // PER_ADDRESS}"
            one = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
            stack.enter_context(closing(one))
            one.sendall(f"GET {HEALTH_PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        for name in names:  # a process of its own works each forecast out
            url = f"{extender.url}/v1/inspect/why/ns/{name}"
            wait_until(lambda url=url: replica.status_of(url) != NOT_FOUND)
            with urlopen(url) as answer:
                assert json.load(answer)["certificate"]["cause"] == "in-use"
