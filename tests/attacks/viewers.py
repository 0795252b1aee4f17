"""A viewer with rights in one namespace, who asks every path for names of other tenants' jobs, and changes queues.

The configuration is a file, on which no role of the API server can give rights.
"""

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from hived_deploy.installation import kinds_of_queues
from hived_extender.api import paths
from hived_extender.http.insight_routes import JOB_KEYS
from hived_extender.http.pages.site import FRAGMENT, TABS
from hived_extender.http.queue_routes import LIST_KEYS
from hived_extender.http.routes import ROUTES
from hived_extender.jobs.annotations import PREFIX
from hived_extender.kube.client import KubeClient, pod_path
from hived_jobs.submission import Submission
from hived_lab.embedded.nodes import machines_of
from tests.attacks.attack import Outcome, Run
from tests.attacks.clusters import GPU, JOBS, PODS
from tests.attacks.target import Target
from tests.e2e.cluster import READY_S
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import DEFINITIONS
from tests.e2e.pods import configuration, pod
from tests.e2e.rights import grant_rights
from tests.e2e.secured import SecuredService, account_token
from tests.e2e.tools import DEFAULT, find
from tests.places import ROOT

Json = dict[str, Any]
Call = Callable[[str, str, str, dict[str, str]], tuple[int, str]]
"""(method, path with query, body, headers) -> (status, text), as the viewer."""

VIEWER, OTHERS, OWN = "viewer", "victim", "evil"
SECRET = "secret"
"""A part of every name of the others' jobs, pods, gangs and users."""

SECRETS = (
    f"{OTHERS}/{SECRET}-run", f"{OTHERS}:{SECRET}-gang", f"podgroup/{OTHERS}/{SECRET}-ring", f"{OTHERS}/{SECRET}-wait",
    f"Job/{OTHERS}/{SECRET}-job", f"{OTHERS}/{SECRET}-job", f"Job/{OTHERS}/{SECRET}-late", f"{SECRET}-late",
)  # fmt: skip
SHARES = {"a": 1, "evil": 1, "b": 1}
SETTINGS: Json = {"rules": 2, "queues": {"enabled": True}}
MINE = (f"{OWN}/mine-run", f"{OWN}/mine-wait", f"Job/{OWN}/mine-late")
SOON_S = 60.0
UNAVAILABLE = 503
NODES = [f"n{number}" for number in range(sum(SHARES.values()))]
NEVER = {"restartPolicy": "Never"}
HTML = (("Accept", "text/html"),)
FORM = (("Content-Type", "application/x-www-form-urlencoded"),)


def embedded(run: Run) -> Outcome:
    """On the embedded API server, beside which there is no scheduler: filter is called for each pod that is to run."""
    outcome = Outcome()
    rights = [f"{verb} {path}" for rule in _role() for verb, path in product(rule["verbs"], rule["nonResourceURLs"])]
    rights += [f"get pods {OWN}", f"update jobs {OWN}"]
    users, shown = {VIEWER: {"username": VIEWER}}, {VIEWER: rights}
    with Target(run, "viewers", is_secured=True, users=users, rights=shown, shares=SHARES, settings=SETTINGS) as target:

        def place(namespace: str, name: str) -> None:
            found = target.kube.get(pod_path(namespace, name))
            target.place(json.dumps({"Pod": found, "Nodes": None, "NodeNames": NODES}))

        def call(method: str, path: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
            connection = target.connect(client="", timeout_s=60.0)
            connection.request(method, path, body or None, {**headers, "Authorization": f"Bearer {VIEWER}"})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            connection.close()
            return response.status, text

        for name in (OTHERS, OWN):
            target.kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
        _Viewer(target.kube, call, place, target.config, outcome).attack(run)
        if why := target.fault():
            outcome.fault(why)
    return outcome


def real(run: Run) -> Outcome:
    """On a real API server, with the role that an installation has for viewers, and with kube-scheduler."""
    outcome = Outcome()
    with ControlPlane(find(DEFAULT), "attacks") as plane:
        grant_rights(plane, overlay="tls")
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(_objects()))
        for each in kinds_of_queues():
            plane.kube.create("/api/v1/namespaces" if each["kind"] == "Namespace" else DEFINITIONS, each)
        file = configuration(run.folder, SHARES, **SETTINGS)
        service, token = SecuredService(plane, run.folder, file), account_token(plane, VIEWER, OWN)
        plane.add_nodes(machines_of(service.spec))
        service.process.start(ready_s=READY_S)
        scheduler = service.start_scheduler()

        def place(namespace: str, name: str) -> None:
            path = pod_path(namespace, name)
            plane.wait_for(f"{name} to run", lambda: bool(plane.kube.get(path)["spec"].get("nodeName")))

        try:
            _Viewer(
                plane.kube,
                lambda method, path, body, headers: service.answer(path, token, method, body, headers),
                place,
                file,
                outcome,
            ).attack(run)
        finally:
            scheduler.stop()
            service.process.stop()
    return outcome


def _role() -> list[Json]:
    """The rules of the role for viewers."""
    file = ROOT / "config" / "deploy" / "base" / "viewer-rbac.yaml"
    rules: list[Json] = yaml.safe_load(file.read_text())["rules"]
    return rules


def _objects() -> Iterator[Json]:
    """Namespaces, and the viewer's rights."""
    for name in (OTHERS, OWN):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    subjects = [{"kind": "ServiceAccount", "name": VIEWER, "namespace": OWN}]
    meta = {"name": VIEWER, "namespace": OWN}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
             {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["update"]}]  # fmt: skip
    yield {**rbac, "kind": "Role", "metadata": meta, "rules": rules}
    for kind, role, metadata in (
        ("RoleBinding", {"kind": "Role", "name": VIEWER}, meta),
        ("ClusterRoleBinding", {"kind": "ClusterRole", "name": "hived-viewer"}, {"name": VIEWER}),
    ):
        reference = {"apiGroup": "rbac.authorization.k8s.io", **role}
        yield {**rbac, "kind": kind, "metadata": metadata, "subjects": subjects, "roleRef": reference}


@dataclass(frozen=True)
class _Question:
    """A call. `asked` are words of it that an answer may repeat; `changes` says that it must be refused."""

    method: str
    path: str
    body: str = ""
    asked: tuple[str, ...] = ()
    changes: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class _Viewer:
    kube: KubeClient
    call: Call
    place: Callable[[str, str], None]
    file: Path
    outcome: Outcome

    def attack(self, run: Run) -> None:
        """Ask all there is, once the others' jobs run and wait."""
        self._fill()
        before = self._order()
        questions = list(self._questions())
        for question in questions[: run.count(len(questions))]:
            self._ask(question)
        for path, key in _ORACLES:
            self._compare(path, key)
        self.outcome.tried += 1
        if (after := self._order()) == before:
            self.outcome.refused += 1
        else:
            self.outcome.let_in.append(f"the order of jobs was {before}, and is {after}")

    # -- the jobs of all

    def _fill(self) -> None:
        gang = {"name": f"{SECRET}-gang", "members": [{"podNumber": 2, "leafCellNumber": 2}]}
        ring = {"gang.scheduling.koordinator.sh/name": f"{SECRET}-ring",
                "gang.scheduling.koordinator.sh/min-available": "2"}  # fmt: skip
        user = {f"{PREFIX}user": f"{SECRET}-user"}
        self._pod(OTHERS, f"{SECRET}-run", vc="a", gpus=8, annotations=user)
        for number in range(2):
            self._pod(OTHERS, f"{SECRET}-gang-{number}", vc="b", gpus=2, affinityGroup=gang, annotations=user)
        words = {f"{PREFIX}virtual-cluster": "b", f"{PREFIX}priority": "0", **ring, **user}
        rings = [f"{SECRET}-ring-{number}" for number in range(2)]
        for name in rings:
            self._create(OTHERS, _of_words(name, words, 2))
        for name in rings:
            self.place(OTHERS, name)
        self._pod(OWN, "mine-run", vc="evil", gpus=8)
        self._create(OTHERS, pod(f"{SECRET}-wait", vc="a", gpus=8, annotations=user))
        self._create(OWN, pod("mine-wait", vc="a", gpus=8))
        for namespace, name in ((OTHERS, f"{SECRET}-job"), (OTHERS, f"{SECRET}-late"), (OWN, "mine-late")):
            self.kube.create(JOBS.format(namespace), _job(name))
        until = time.monotonic() + SOON_S
        while len(self._order()) < 3:
            if time.monotonic() > until:
                raise TimeoutError(f"the jobs of queues do not wait: {self._order()}")
            time.sleep(0.1)

    def _pod(self, namespace: str, name: str, **wishes: Any) -> None:
        self._create(namespace, pod(name, **wishes))
        self.place(namespace, name)

    def _create(self, namespace: str, body: Json) -> None:
        self.kube.create(PODS.format(namespace), body)

    def _order(self) -> list[tuple[int, str]]:
        """The places of waiting jobs, with the names that the viewer reads."""
        status, text = self.call("GET", paths.QUEUE_JOBS_PATH, "", {})
        items = json.loads(text)["items"] if status == 200 else []
        return [(each["position"], each["name"]) for each in items]

    # -- what is asked

    def _questions(self) -> Iterator[_Question]:
        for route in ROUTES:
            names = (*SECRETS, *MINE) if "{name}" in route.path else ("",)
            for name in names if route.method == "GET" else ():
                path = route.path.replace("{name}", quote(name, safe="/:"))
                yield _Question("GET", path, asked=(name,))
                yield from (
                    _Question("GET", f"{path}?{key}={text}", asked=(name,))
                    for key in route.query
                    for text in (OTHERS, "a", "1")
                )
        yield from self._posts()
        yield from self._pages()

    def _posts(self) -> Iterator[_Question]:
        for path in (paths.FILTER_PATH, paths.PREEMPT_PATH, paths.BIND_PATH):
            yield _Question("POST", path, "{}", changes=True)
        gang = {"name": f"{SECRET}-gang", "members": [{"podNumber": 2, "leafCellNumber": 2}]}
        tried = [
            pod("x", vc="a", gpus=8), pod("x", vc="a", gpus=8, priority=1000), pod("x", vc="b", gpus=8, priority=-1),
            pod("x", vc="b", gpus=2, affinityGroup=gang), pod(f"{SECRET}-wait", vc="a", gpus=8),
        ]  # fmt: skip
        for each, namespace in product(tried, (OTHERS, OWN)):
            body = {**each, "metadata": {**each["metadata"], "namespace": namespace, "uid": "u"}}
            yield _Question("POST", paths.WHAT_IF_PATH, json.dumps({"pods": [body]}), ("x", *_said(body)))
        for name in (*MINE, *SECRETS):
            changes = [["priority=1000"], [f"ends={SECRETS[0]}"], [f"move={SECRETS[0]}"], ["ends=another tenant's job"]]
            for change in changes:
                tried_on = json.dumps({"name": name, "changes": change})
                yield _Question("POST", paths.IF_PATH, tried_on, (name, *SECRETS))
        for text in self._configurations():
            yield _Question("POST", paths.CONFIG_PLAN_PATH, json.dumps({"text": text}))
            yield _Question("POST", paths.CONFIG_PATH, json.dumps({"text": text}), changes=True)
            form = urlencode({"text": text})
            yield _Question("POST", paths.PAGE_CONFIG_PLAN_PATH, form, headers=FORM)
            yield _Question("POST", paths.PAGE_CONFIG_PUSH_PATH, form, changes=True, headers=FORM)
        yield _Question("POST", paths.DEFRAG_PATH, json.dumps({"plan": {"steps": []}}), changes=True)
        yield _Question("POST", paths.DEFRAG_STOP_PATH, "{}", changes=True)
        yield from self._changes()

    def _changes(self) -> Iterator[_Question]:
        """Of others' jobs, and moves of the viewer's own."""
        for job, to in product((*SECRETS, *MINE), ("front", "back", SECRETS[-1])):
            body = json.dumps({"job": job, "action": "move", "to": to})
            yield _Question("POST", paths.QUEUE_CHANGES_PATH, body, (job, to), changes=True)
            form = urlencode({"job": job, "change": "move", "before": to})
            yield _Question("POST", paths.PAGE_QUEUE_CHANGES_PATH, form, (job, to), changes=True, headers=FORM)
        for job in SECRETS:
            form = urlencode({"job": job, "version": "batch/v1"})
            yield _Question("POST", paths.PAGE_CANCEL_PATH, form, (job,), changes=True, headers=FORM)
        for job, action in product(SECRETS, ("hold", "release")):
            body = json.dumps({"job": job, "action": action})
            yield _Question("POST", paths.QUEUE_CHANGES_PATH, body, (job,), changes=True)

    def _pages(self) -> Iterator[_Question]:
        names = [quote(name, safe="/:") for name in (*SECRETS, *MINE)]
        pages = ["/", *(tab.path for tab in TABS)]
        pages += [f"{paths.PAGE_QUEUES_PATH}/{vc}" for vc in SHARES] + [f"/page/vcs/{vc}" for vc in SHARES]
        pages += [f"{base}/{name}" for base in (paths.PAGE_QUEUED_PATH, "/page/jobs") for name in names]
        pages += [f"/page/jobs/{name}?if=ends%3D{names[0]}" for name in names]
        pages += [paths.PAGE_SUBMIT_PATH, *(f"{paths.PAGE_LOG_PATH}?pod={name}" for name in names)]
        pages += ["/page/time/series", "/page/cells/layout", "/page/configuration/versions/1"]
        pages += [f"/page/cells/{part}?at=0-64" for part in ("one", "tiles", "names")]
        for path, headers in product(pages, (HTML, (*HTML, (FRAGMENT, "true")))):
            yield _Question("GET", path, asked=(*SECRETS, *names), headers=headers)

    def _configurations(self) -> Iterator[str]:
        """With which the others' jobs would lose cells."""
        document = yaml.safe_load(self.file.read_text())
        for vc in ("a", "b"):
            rest = {name: each for name, each in document["virtualClusters"].items() if name != vc}
            yield yaml.safe_dump({**document, "virtualClusters": rest})
        yield yaml.safe_dump({**document, "queues": {"enabled": False}})
        for count in (1, 2):
            physical = document["physicalCluster"]
            fewer = {**physical, "physicalCells": physical["physicalCells"][count:]}
            yield yaml.safe_dump({**document, "physicalCluster": fewer})

    # -- the answers

    def _ask(self, question: _Question) -> None:
        self.outcome.tried += 1
        status, text = self.call(question.method, question.path, question.body, dict(question.headers))
        told = f"{question.method} {question.path} {question.body[:200]}: {status}"
        found = _names_in(text, question.asked)
        if found:
            self.outcome.let_in.append(f"{told} names {found}")
        elif question.changes and status < 400:
            self.outcome.let_in.append(f"{told} is done: {text[:200]}")
        elif status == 0 or (status >= 500 and status != UNAVAILABLE):
            self.outcome.fault(f"{told} {text[:200]}")
        else:
            self.outcome.refused += 1

    def _compare(self, path: str, key: str) -> None:
        """Whether a guess of a hidden word is right cannot be told from how many jobs are listed."""
        self.outcome.tried += 1
        right, wrong = HIDDEN[key], "nobody"
        counts = []
        for guess in (right, wrong):
            _, text = self.call("GET", f"{path}?{key}={quote(guess)}", "", {})
            counts.append(len(re.findall("another tenant", text)) or text.count('"name"'))
        if counts[0] == counts[1]:
            self.outcome.refused += 1
        else:
            self.outcome.let_in.append(f"{path}?{key}= lists {counts[0]} for {right!r}, {counts[1]} for {wrong!r}")


HIDDEN = {"user": f"{SECRET}-user", "namespace": OTHERS, "q": SECRET, "prefix": f"{SECRET}-late"}
"""By key of a query, a word of the others that may not be guessed."""

_ORACLES = [
    (path, key)
    for path, keys in ((paths.JOBS_PATH, JOB_KEYS), (paths.QUEUE_JOBS_PATH, LIST_KEYS), ("/page/jobs", JOB_KEYS))
    for key in keys
    if key in HIDDEN
]


def _names_in(text: str, asked: tuple[str, ...]) -> list[str]:
    """The secret words of an answer that the question has not."""
    for word in sorted(filter(None, asked), key=len, reverse=True):
        text = text.replace(word, "").replace(html.escape(word), "").replace(quote(word, safe=""), "")
    return sorted(set(re.findall(rf"{SECRET}[\w-]*", text)))[:5]


def _said(body: Json) -> tuple[str, ...]:
    """The names that a pod says itself."""
    return tuple(re.findall(rf"{SECRET}[\w-]*", json.dumps(body)))


def _of_words(name: str, annotations: Json, gpus: int) -> Json:
    """A pod that asks for devices, as without the webhook."""
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    scheduler = Submission(user="").scheduler_for(annotations[f"{PREFIX}virtual-cluster"])
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


def _job(name: str) -> Json:
    """A Job in the queue of the virtual cluster "b", which is full."""
    one = _of_words(name, {f"{PREFIX}virtual-cluster": "b", f"{PREFIX}priority": "0"}, 8)
    template = {"metadata": {"annotations": one["metadata"]["annotations"]}, "spec": one["spec"] | NEVER}
    labels = {"userName": f"{SECRET}-user"} if name.startswith(SECRET) else {}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
