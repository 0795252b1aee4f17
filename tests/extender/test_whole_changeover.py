"""A service that begins without quick kernels, while pods come and go, until it has them.

It begins with an empty folder of compiled kernels. Once it runs plain ones, it finds there what this process has
compiled, so that nobody waits for the compiler again. Whatever its own compiler has begun by then, the result is the
same.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hived.kernels.jit import EXCHANGEABLE
from hived_extender.kube.client import KubeClient
from hived_extender.warm import compile_kernels
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.core.kernels.test_linked import PATH
from tests.extender.machine.small_cluster import CONFIG, cluster_spec, spec_text, wait_until
from tests.extender.replica import DEADLINE_S, connect, create_pod, place, status_of
from tests.programs import hived

GROUPS = "/v1/inspect/affinitygroups/"
LONGEST_S = 500.0
"""Its compiler may have begun with every kernel before it finds one."""


@dataclass(frozen=True)
class Service:
    """A service in a process of its own."""

    url: str

    def get(self, path: str) -> Any:
        """What it answers."""
        with urlopen(self.url + path) as response:
            return json.load(response)

    @property
    def kernels(self) -> str:
        """Which kernels it runs."""
        return str(self.get("/readyz")["kernels"])


@contextmanager
def served(folder: Path, cluster: EmbeddedCluster) -> Iterator[Service]:
    """A service whose files are all in one folder."""
    config, log = folder / "hived.yaml", folder / "log"
    config.write_text(CONFIG)
    own = {"NUMBA_CACHE_DIR": str(folder), "KUBECONFIG": str(cluster.hived_kubeconfig), "PYTHONPATH": PATH}
    words = ["serve", "--config", str(config), "--listen", "127.0.0.1:0", "--log-format", "json"]
    with log.open("w") as stderr, hived(*words, env=os.environ | own, stderr=stderr):

        def urls() -> list[str]:
            lines = log.read_text().split("\n")[:-1]
            return [url for line in lines if (url := json.loads(line).get("url"))]

        wait_until(urls, DEADLINE_S)
        service = Service(urls()[0])
        wait_until(lambda: status_of(f"{service.url}/readyz") == 200, DEADLINE_S)
        yield service


@pytest.mark.skipif(not EXCHANGEABLE, reason="kernels are linked, or stay plain: make test-jit")
def test_a_service_that_changes_over_answers_all_the_while_and_keeps_its_state(tmp_path: Path) -> None:
    from hived.kernels.compiling.kernel_cache import kernel_folders  # noqa: PLC0415  # numba

    compile_kernels()
    numbers = count()
    with EmbeddedCluster(cluster_spec()) as cluster, served(tmp_path, cluster) as service:
        kube: KubeClient = connect(cluster)

        def come_and_go() -> None:
            pod = create_pod(kube, f"p{next(numbers)}", spec_text(leaf_cells=1))
            place(service, pod)
            kube.delete_pod("ns", pod["metadata"]["name"], grace_period_s=0)
            wait_until(lambda: service.get(GROUPS) == staying, DEADLINE_S)

        place(service, create_pod(kube, "stays"))
        staying = service.get(GROUPS)
        come_and_go()
        seen = [service.kernels]
        shutil.copytree(kernel_folders()[0], tmp_path / kernel_folders()[0].name, dirs_exist_ok=True)

        def has_changed() -> bool:
            come_and_go()
            seen.append(service.kernels)
            return seen[-1] == "compiled"

        wait_until(has_changed, LONGEST_S)
        come_and_go()
        kube.close()
    assert seen[0].startswith("plain, compiling")
