"""Pushes during which the service is killed: `python -m tests.storm.crashes --random 100`.

`hived serve --config-map` runs as a process of its own, behind a proxy, against an API server that lives on here.
After each SIGKILL it is started again: then the old or the new configuration has to be in force, wholly.
"""

import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from hived.life import status
from hived_config.loader import load_text
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube.client import NODES, KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.service import Service
from hived_extender.reconfiguration.stores import ConfigMapStore
from hived_extender.reconfiguration.versions import Stored
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.driver import add_any_seed, new_parser, say, seeded
from tests.e2e.http_proxy import Hold, HttpProxy, Side
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import FakeKube
from tests.property.choices import Choices, Seeded
from tests.storm.busy_cluster import CONFIG, GROUPS, call
from tests.storm.changes import changed
from tests.storm.documents import Document, first_document, text_of
from tests.storm.mistakes import push_body
from tests.storm.replica import NAME, NAMESPACE, Replica
from tests.storm.rules import Broken
from tests.storm.traffic import POD_GROUPS, PODS, is_running, make_job

CONFIG_MAP = rf"/{NAME}(\?|$)"
"""A pattern of paths."""

CELLS = "/v1/inspect/clusterstatus"
MET_S = 60.0
PLANS = 5
OUTDATED = 409
"""The answer to a push whose plan is not true any more, since pods started or made room meanwhile: plan anew."""

JOBS = 14
LEAST_PODS = 10
QUIET_S = 0.5

KILLED = {
    "before the store is read": (Side.REQUEST, "GET", CONFIG_MAP),
    "when the store was read": (Side.ANSWER, "GET", CONFIG_MAP),
    "before the commit reached the API server": (Side.REQUEST, "PUT", CONFIG_MAP),
    "when the commit was answered": (Side.ANSWER, "PUT", CONFIG_MAP),
    "when the new one is in force": (Side.REQUEST, "POST", r"/events(\?|$)"),  # after that commit
}
"""By when the service is killed, the request or answer that its proxy waits for."""

COMMITTED = ("when the commit was answered", "when the new one is in force")

Json = dict[str, Any]


class KilledService:
    """A cluster with running pods and a replica that is killed again and again; `tally` says what was in force then."""

    def __init__(self, cluster: EmbeddedCluster, proxy: HttpProxy, replica: Replica, seed: int) -> None:
        self.replica = replica
        self.proxy = proxy
        self.tally: Counter[str] = Counter()
        self._cluster = cluster
        self._kube = KubeClient.connect(cluster.api_url)
        self._choices = Choices(Seeded(seed))
        self._document = first_document()
        self._other: Document = first_document()
        self._push_s = 0.3  # how long it takes
        self._old = 0, ""
        self._new_text = ""
        self._given = ""  # the text to push, if it is not to be another one
        self._answer: tuple[int, Any] = 0, None

    @classmethod
    @contextmanager
    def open(cls, seed: int) -> Iterator["KilledService"]:
        """With pods that run and some that wait, and nobody who schedules more."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hived-crashes-"))
            text = text_of(first_document())
            cluster = stack.enter_context(EmbeddedCluster(load_text(text, "crashes.yaml").cluster))
            kube = KubeClient.connect(cluster.api_url)
            ConfigMapStore(kube, NAMESPACE, NAME, Metrics()).create(Stored(text))
            kube.close()
            proxy = HttpProxy(lambda: cluster.api_url)
            proxy.start()
            stack.callback(proxy.stop)
            kubeconfig = Path(folder, "kubeconfig")
            kubeconfig.write_text(cluster.hived_kubeconfig.read_text().replace(cluster.api_url, proxy.url))
            replica = Replica(kubeconfig, Path(folder, "log"))
            stack.callback(replica.kill)
            replica.start()
            killed = cls(cluster, proxy, replica, seed)
            stack.callback(killed._kube.close)
            killed._settle_pods()
            yield killed

    def kill_at(self, when: str) -> None:
        """Push and kill at one of `KILLED`, start again. Raises Broken if neither configuration is wholly in force."""
        for _ in range(PLANS):
            pushing = self._prepare()
            drop = self._drop(when)
            pushing.start()
            is_met = drop.wait(MET_S)
            pushing.join()
            if self._answer[0] != OUTDATED:
                break
            self.proxy.forget()
        if not is_met:
            raise Broken(f"nothing was asked of the API server that is waited for: {when}; {self._answer}")
        found = self._look_after_start()
        wanted = "new" if when in COMMITTED else "old"
        if found != wanted:
            raise Broken(f"killed {when}: the {found} configuration is in force, expected the {wanted} one")

    def kill_sometime(self) -> None:
        """The same at a random time."""
        pushing = self._prepare()
        pushing.start()
        time.sleep(self._choices.integer(0, 1000) / 1000 * self._push_s * 1.2)
        self.replica.kill()
        pushing.join()
        self._look_after_start()

    def push(self) -> None:
        """Push as anybody would. Raises Broken if that does not work."""
        for _ in range(PLANS):
            pushing = self._prepare()
            began = time.monotonic()
            pushing.start()
            pushing.join()
            if self._answer[0] != OUTDATED:
                break
        if self._answer[0] != 200:
            raise Broken(f"a push after a restart: {self._answer}")
        self._push_s = time.monotonic() - began
        if self._look() != "new":
            raise Broken("a push was answered, and is not in force")
        self._document = self._other

    def roll_back(self, when: str) -> None:
        """Kill while the version before the present one is put in force again."""
        self.push()
        versions = self._ok("GET", f"{CONFIG}/versions")["items"]
        text = self._ok("GET", f"{CONFIG}/versions/{versions[1]['version']}")["text"]
        self._given = text
        try:
            self.kill_at(when)
        finally:
            self._given = ""

    def _drop(self, when: str) -> Hold:
        commit = None
        if KILLED[when][1] == "POST":  # other events tell nothing of the commit
            commit = self.proxy.hold(*KILLED["when the commit was answered"])
            commit.release()
        return self.proxy.drop(*KILLED[when], act=self.replica.kill, after=commit)

    def _prepare(self) -> threading.Thread:
        """A push that has been planned, to be sent by a thread."""
        shown = self._ok("GET", CONFIG)
        self._old = shown["version"], shown["text"]
        self._other = changed(self._choices, self._document)
        self._new_text = self._given or text_of(self._other)
        plan = self._ok("POST", f"{CONFIG}/plan", json.dumps({"text": self._new_text}).encode())
        agreed = {one["name"]: one["verdict"] for one in plan["groups"]["affected"]}
        body = push_body(self._new_text, shown["version"], agreed=agreed, allowDowngrade=True)
        return threading.Thread(target=self._send, args=(body,))

    def _send(self, body: bytes) -> None:
        self._answer = 0, None
        with suppress(OSError, HTTPException, ValueError):  # it is killed meanwhile
            self._answer = call(self.replica.url, "POST", CONFIG, body)

    def _look_after_start(self) -> str:
        self.proxy.forget()
        if self._answer[0] not in (0, 200, OUTDATED):
            raise Broken(f"the push was refused: {self._answer}")
        self.replica.start()
        found = self._look()
        if found == "old" and self._answer[0] == 200:
            raise Broken("a push was answered, and is not in force after a crash")
        if found == "new" and not self._given:
            self._document = self._other
        self.tally[found] += 1
        return found

    def _look(self) -> str:
        """Which configuration is in force, "old" or "new"; everything else has to go with it."""
        shown = self._ok("GET", CONFIG)
        now = shown["version"], shown["text"]
        number, _ = self._old
        known = {self._old: "old", (number + 1, self._new_text): "new"}
        if now not in known:
            raise Broken(f"version {now[0]} is in force, neither the old nor the new one:\n{now[1]}")
        newest = self._ok("GET", f"{CONFIG}/versions")["items"][0]
        stored = self._ok("GET", f"{CONFIG}/versions/{newest['version']}")
        if (stored["version"], stored["text"]) != now:
            raise Broken(f"version {now[0]} is in force, and {stored['version']} is the newest in the history")
        expected = self.rebuilt(now[1])
        for path, wanted in expected.items():
            found = _timeless(self._ok("GET", path))
            if found != wanted:
                raise Broken(f"{path} is\n{found}\nand a new service shows\n{wanted}")
        return known[now]

    def rebuilt(self, text: str) -> Mapping[str, Json]:
        """The answers of a service that begins with this configuration and the pods there are, by path."""
        configuration = load_text(text, "crashes.yaml")
        service = Service(configuration.cluster, FakeKube(), rules=configuration.rules, serves_every_name=True)
        try:
            service.sync_nodes(self._kube.list_objects(NODES, Node).items)
            service.sync_pods(self._kube.list_objects(PODS, Pod).items)
            service.lead(lambda: True)
            groups = list(service.reader.affinity_groups()) or None
            with service._open_core() as core:
                shown = {GROUPS: {"items": groups}, CELLS: status.cluster_status(core.state)}
            return {path: _timeless(json.loads(json.dumps(view))) for path, view in shown.items()}
        finally:
            service.close()

    def _settle_pods(self) -> None:
        """Begin jobs until the cluster is busy."""
        for number in range(JOBS):
            job = make_job(self._choices, f"job-{number}", self._document)
            if job.pod_group is not None:
                self._kube.create(POD_GROUPS, job.pod_group)
            for pod in job.pods:
                pod["metadata"]["annotations"].pop("embedded.hived/run-seconds", None)
                self._kube.create(PODS, pod)
        self._cluster.start_scheduler(self.replica.url)
        expect_soon(lambda: len(self._running()) >= LEAST_PODS)
        seen = -1
        while seen != len(self._running()):  # nothing is to be amid being bound
            seen = len(self._running())
            time.sleep(QUIET_S)
        self._cluster.stop_scheduler()

    def _running(self) -> list[Json]:
        return [pod for pod in self._kube.list_objects(PODS, dict).items if is_running(pod)]

    def _ok(self, method: str, path: str, body: bytes | None = None) -> Any:
        code, answer = call(self.replica.url, method, path, body)
        if code != 200:
            raise Broken(f"{method} {path}: {code} {answer}")
        return answer


def _timeless(view: Json) -> Json:
    """Without the times of lazy preemptions, which a new service does not know."""
    for group in view.get("items") or ():
        group["status"].get("lazyPreemptionStatus", {}).pop("preemptionTime", None)
    return view


def main() -> None:
    parser = new_parser("tests.storm.crashes", __doc__)
    parser.add_argument("--random", type=int, default=100, help="crashes at random times [default: %(default)s]")
    parser.add_argument("--each", type=int, default=4, help="crashes at each chosen moment [default: %(default)s]")
    add_any_seed(parser)
    options = parser.parse_args()
    with seeded(options) as seed, KilledService.open(seed) as killed:
        for _ in range(options.each):
            for when in KILLED:
                killed.kill_at(when)
                killed.roll_back(when)
        say(f"{killed.tally.total()} at chosen moments")
        for number in range(options.random):
            killed.kill_sometime()
            if number % 10 == 9:
                killed.push()
                say(f"{number + 1} at random times")
        found = ", ".join(f"{count} times the {which} configuration" for which, count in sorted(killed.tally.items()))
        print(f"{killed.tally.total()} crashes: {found} was in force after the restart, wholly")


if __name__ == "__main__":
    main()
