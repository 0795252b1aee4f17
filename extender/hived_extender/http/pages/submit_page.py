"""A form that becomes the YAML of a job: shown, tried by hived, and created by the viewer's own rights.

The form writes a batch/v1 Job. Any other YAML of one pod or job object may be pasted in its place. What hived says is
its answer about pods that do not exist yet; what the API server says is that of a dry run with the viewer's token.
Where a page has none to show, the commands that do the same stand there.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import yaml
from flask import Response, redirect, request
from msgspec.structs import replace
from werkzeug.wrappers import Response as Plain

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.waiting import PodOutcome
from hived_extender.http.answers import Identity
from hived_extender.http.pages.site import Site
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PRIORITY, VIRTUAL_CLUSTER, parse_priority
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.kinds.koordinator import GANG_NAME, MINIMUM
from hived_extender.jobs.kinds.marks import USER
from hived_extender.jobs.progress import read_whole_duration
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import wall_s
from hived_extender.queues.bounds import bound_of, opportunistic

TAB = "Jobs"
MOST_BYTES = 64 * 1024
MOST_DEPTH = 64
"""Levels of lists and mappings: a reader of C recurses, and thousands of levels would end the whole process."""

MOST_PODS = 256
"""Pods of a job that are tried; a larger one is created without."""

MOST_ASKED = 16
"""Namespaces of which it is asked whether the caller may create jobs there."""

SCHEDULER = "hived"

DEFAULT = "default"

SERVICE_ACCOUNT = "system:serviceaccount:"

UNPROCESSABLE = 422

DO = ("write", "try", "create")
"""The words of a form: write the YAML and try it, try it, create the job with the viewer's own token."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Fields(msgspec.Struct, frozen=True):
    """The form, as it was filled in."""

    name: str = ""
    user: str = ""
    namespace: str = "default"
    vc: str = ""
    leaf_type: str = ""
    gpus: str = "1"
    pods: str = "1"
    priority: str = "0"
    image: str = ""
    command: str = ""
    limit: str = ""
    gang: str = ""


class Cluster(msgspec.Struct, frozen=True):
    """The choices of the form: GPU types with their resources, and whether jobs queue."""

    vcs: tuple[str, ...]
    resources: dict[str, str]
    has_queues: bool


class Tried(msgspec.Struct, frozen=True):
    """The outcome of a trial: the API server's answer, "" if it was not asked, and the outcomes of the pods."""

    said: str
    outcomes: tuple[PodOutcome, ...]
    left_out: str = ""

    @property
    def refusal(self) -> str:
        """Why a job is not created, as `hived submit` says it; "" if all of its pods may run, now or later."""
        refused = [one for one in self.outcomes if one.outcome in ("refused", "never")]
        if not refused:
            return ""
        count = f"{len(refused)} of {len(self.outcomes)} pods" if len(self.outcomes) > 1 else "the pod"
        can_never = all(one.outcome == "never" for one in refused)
        says = f"says that {count} can never run" if can_never else f"refuses {count}"
        return f"nothing was created, because hived {says}: hived submit --unchecked creates it all the same"


class SubmitPage:
    """The form, and what it is answered with."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def form(self) -> Response:
        """The empty form."""
        caller = self._site.caller
        namespace, vc = self._presets(caller)
        user = "" if caller is None else caller.name
        return self._page(Fields(user=user, namespace=namespace, vc=vc, gang="yes"), "", None)

    def submit(self) -> Response | Plain:
        """Write a job from the fields, try one, or create it. Raises UserError (403)."""
        self._site.check_form(MOST_BYTES)
        given = {name: request.form.get(name, "").strip() for name in Fields.__struct_fields__}
        fields, wanted = Fields(**given), request.form.get("do", "")
        text = request.form.get("yaml", "").replace("\r\n", "\n")
        try:
            if wanted not in DO:
                raise UserError(f"do={wanted[:40]!r}: expected one of {', '.join(DO)}; nothing was tried or created")
            if wanted == "write":
                text = written(fields, self._cluster())
            body = read(text)
            if wanted != "create":
                return self._page(fields, text, self._try(body))
            tried = self._foresee(body)
            if tried.refusal:
                return self._page(fields, text, tried, tried.refusal, UNPROCESSABLE)
            return self._create(body)
        except UserError as error:
            return self._page(fields, text, None, error.message, error.code)

    def _page(self, fields: Fields, text: str, tried: Tried | None, mistake: str = "", status: int = 200) -> Response:
        return self._site.page(
            "submit.html",
            TAB,
            "Submit a job",
            status,
            poll_s=0,
            fields=fields,
            cluster=self._cluster(),
            text=text,
            tried=tried,
            mistake=mistake,
            token=self._site.guard.token(self._site.caller),
            can_act=self._site.can_act,
        )

    def _cluster(self) -> Cluster:
        queues = self._site.backend.queue_answers
        frame = self._site.frames.latest()
        with self._site.backend.service.runner.look() as machine:
            known = dict(machine.interpreter.resources)
        types = sorted(frame.cells.topology.leaf_type_chains)
        resources = {leaf_type: known.get(leaf_type, "") for leaf_type in types}
        return Cluster(frame.layout.vcs, resources, queues is not None and queues.is_enabled)

    def _presets(self, caller: Identity | None) -> tuple[str, str]:
        """The first namespace in which the caller may create jobs, `default` if none is known, and its virtual cluster.

        These are that of a service account, `default`, and those that virtual clusters list by name.
        """
        with self._site.backend.service.runner.look() as machine:
            interpreter = machine.interpreter
            own = caller.name.split(":")[2:3] if caller is not None and caller.name.startswith(SERVICE_ACCOUNT) else []
            known = dict.fromkeys([*own, DEFAULT, *interpreter.rules.access.namespaces])
            vcs = {name: interpreter.default_virtual_cluster(name) for name in known}
        usable = [name for name in vcs if vcs[name]] or [DEFAULT]
        if caller is not None:
            rights = (name for name in usable[:MOST_ASKED] if self._may_create(caller, name))
            usable = [next(rights, DEFAULT)]
        return usable[0], vcs[usable[0]]

    def _may_create(self, caller: Identity, namespace: str) -> bool:
        try:
            resource = {"verb": "create", "group": "batch", "resource": "jobs", "namespace": namespace}
            return self._site.gate.may_do(caller, resource)
        except KubeError:
            return False

    def _try(self, body: dict[str, Any]) -> Tried:
        said = ""
        if self._site.can_act:
            with self._site.viewer() as kube:
                kube.create(collection(body), body, dry_run=True, is_strict=True)
                said = "The API server would take it from you."
        return replace(self._foresee(body), said=said)

    def _foresee(self, body: dict[str, Any]) -> Tried:
        """Forecast the job by the rules of hived."""
        pods, left_out = pods_of(body)
        if not pods:
            return Tried("", (), left_out)
        caller = self._site.caller
        with self._site.backend.service.questions.place(caller.name if caller is not None else ""):
            found = self._outcomes(body, pods)
        mask = self._site.mask()
        return Tried("", tuple(mask.forecast(one, wall_s()) for one in found))

    def _outcomes(self, body: dict[str, Any], pods: list[Pod]) -> list[PodOutcome]:
        """Forecast each pod of a job."""
        service, queues = self._site.backend.service, self._site.backend.queue_answers
        told = service.what_if(pods)
        if body["kind"] == "Pod" or queues is None or not queues.is_enabled:
            return told
        trees = {one.vc for one in queues.queues() if one.name != one.vc}
        with service.runner.look() as machine:
            interpreter, cluster = machine.interpreter, machine.verbs.core.state.spec
        bound = bound_of(table.read(body), interpreter, cluster, trees)
        return told if bound is None else bound.judged(told, partial(self._ask_lent, pods))

    def _ask_lent(self, pods: list[Pod]) -> list[PodOutcome]:
        for pod in pods:
            pod.metadata.annotations = opportunistic(pod.annotations)
        return self._site.backend.service.what_if(pods)

    def _create(self, body: Mapping[str, Any]) -> Plain:
        with self._site.viewer() as kube:
            made = kube.create(collection(body), body, is_strict=True)
        metadata = made.get("metadata", {})
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        kind = str(body["kind"])
        return redirect(
            paths.page_job_path(f"{namespace}/{name}" if kind == "Pod" else f"{kind}/{namespace}/{name}"), 303
        )


def written(fields: Fields, cluster: Cluster) -> str:
    """The YAML of the job that the fields describe. Raises UserError, which names the field."""
    for what, text in (("name", fields.name), ("namespace", fields.namespace)):
        if not _NAME.fullmatch(text):
            raise UserError(f"{what}: expected small letters, digits and -, such as train-1, found {text!r}")
    if fields.vc not in cluster.vcs:
        raise UserError(f"virtual cluster: expected one of {', '.join(cluster.vcs)}, found {fields.vc!r}")
    if fields.leaf_type not in cluster.resources:
        raise UserError(f"GPU type: expected one of {', '.join(cluster.resources)}, found {fields.leaf_type!r}")
    if not fields.image:
        raise UserError("image: expected the name of a container image, such as pytorch/pytorch:latest")
    gpus, pods = _count("GPUs per pod", fields.gpus), _count("pods", fields.pods)
    resource = cluster.resources[fields.leaf_type] or "nvidia.com/gpu"
    annotations = {VIRTUAL_CLUSTER: fields.vc, PRIORITY: str(parse_priority(fields.priority))}
    if len(cluster.resources) > 1:
        annotations[LEAF_CELL_TYPE] = fields.leaf_type
    if fields.gang and pods > 1 and not cluster.has_queues:  # a queue starts all pods of a job together anyway
        annotations |= {GANG_NAME: fields.name, MINIMUM: str(pods)}
    container: dict[str, Any] = {"name": "main", "image": fields.image}
    if fields.command:
        container["command"] = ["sh", "-c", fields.command]
    container["resources"] = {"limits": {resource: gpus}}
    spec: dict[str, Any] = {"suspend": True} if cluster.has_queues else {}
    spec |= {"parallelism": pods, "completions": pods, "backoffLimit": 0}
    if fields.limit:
        spec["activeDeadlineSeconds"] = _limit(fields.limit)
    template = {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container]}
    spec["template"] = {"metadata": {"annotations": annotations}, "spec": template}
    metadata: dict[str, Any] = {"name": fields.name, "namespace": fields.namespace}
    if fields.user:
        metadata["annotations"] = {USER: fields.user}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return yaml.safe_dump(body, sort_keys=False, width=100)


def _limit(text: str) -> int:
    try:
        return read_whole_duration(text)
    except UserError as error:
        raise UserError(f"time limit: {error.message}") from None


def _count(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 7):
        raise UserError(f"{what}: expected a number from 1, found {text[:20]!r}")
    return int(text)


def read(text: str) -> dict[str, Any]:
    """One object of Kubernetes. Raises UserError for anything else, for aliases, which could make it endless, and for
    more than MOST_DEPTH levels.
    """
    try:
        _check_shape(text)
        found = list(yaml.load_all(text, yaml.CSafeLoader))
        msgspec.json.encode(found)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"YAML: {error}") from None
    objects = [each for each in found if each is not None]
    if len(objects) != 1 or not isinstance(objects[0], dict):
        raise UserError(f"YAML: expected one job, found {len(objects)} documents; submit several with hived submit")
    body: dict[str, Any] = objects[0]
    if "protocolVersion" in body and "kind" not in body:
        raise UserError("YAML: this is a job of OpenPAI: save it, and hived submit job.yaml")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not all(isinstance(body.get(key), str) for key in ("apiVersion", "kind")):
        raise UserError("YAML: expected a job with apiVersion, kind and metadata")
    collection(body)
    return body


def _check_shape(text: str) -> None:
    """Raises UserError for what is dangerous to read, and YAMLError. Events come without recursion."""
    depth = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise UserError("YAML: write aliases (*name) out, they are not read here")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise UserError(f"YAML: expected at most {MOST_DEPTH} levels of lists and mappings")


def collection(body: Mapping[str, Any]) -> str:
    """The path that an object is created at. Raises UserError for one of a kind that is no job's."""
    version, kind_name = body["apiVersion"], body["kind"]
    namespace = body["metadata"].get("namespace") or "default"
    if not isinstance(namespace, str) or not _NAME.fullmatch(namespace):
        raise UserError(f"metadata.namespace: {str(namespace)[:80]!r} is no name of a namespace")
    if (version, kind_name) == ("v1", "Pod"):
        return f"/api/v1/namespaces/{namespace}/pods"
    kind = table.find_kind(version, kind_name)
    if kind is None:
        raise UserError(f"kind {kind_name[:80]!r} of {version[:80]!r} is no job that is known here: use hived submit")
    return path_of(version, kind.plural, namespace, "").rstrip("/")


def pods_of(body: dict[str, Any]) -> tuple[list[Pod], str]:
    """The pods of a Pod or of a job, as they would be made; else none, and why. Raises UserError."""
    metadata = body["metadata"]
    name, namespace = metadata.get("name") or "unnamed", metadata.get("namespace") or "default"
    if body["kind"] == "Pod":
        templates: list[Mapping[str, Any]] = [body]
    else:
        job = table.read(body)
        roles = job.roles
        count = sum(role.count for role in roles)
        if not count and job.roles_in is None:
            return [], f"a {body['kind']} runs no pods as it is"
        if not count:
            return [], f"a {body['kind']} names no pods of its own: its controller makes them elsewhere"
        if count > MOST_PODS:
            return [], f"its {count:,} pods are too many to be tried here: hived submit --dry-run does"
        templates = [role.template for role in roles for _ in range(role.count)]
    made = []
    for number, template in enumerate(templates):
        own = {"name": f"{name}-{number}" if len(templates) > 1 else name, "namespace": namespace}
        made.append({"metadata": {**(template.get("metadata") or {}), **own}, "spec": template.get("spec")})
    try:
        return [msgspec.convert(each, Pod) for each in made], ""
    except msgspec.ValidationError as error:
        raise UserError(f"YAML: {error}") from error


def add_pages(site: Site) -> None:
    """The one page."""
    page = SubmitPage(site)
    site.blueprint.add_url_rule(paths.PAGE_SUBMIT_PATH, "submit", page.form)
    site.blueprint.add_url_rule(paths.PAGE_SUBMIT_PATH, "submit_form", page.submit, methods=["POST"])
