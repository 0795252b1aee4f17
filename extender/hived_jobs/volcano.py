"""Volcano's Job (batch.volcano.sh/v1alpha1): its tasks' pods, what its plugins add to them, and its policies."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from hived_config.words import counted
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.volcano import TIER
from hived_jobs.documents import Document, Section
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.submission import (
    Job,
    Manifest,
    PlannedJob,
    PlannedPod,
    Role,
    Submission,
    add_env,
    gang_of,
    mount,
    read_job,
    read_role,
)

KNOWN = ("env", "svc", "ssh", "pytorch", "tensorflow", "mpi")

_HOSTS_FOLDER = "/etc/volcano"
_SSH_CONFIG = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins that a job asks for, each with its options. The frameworks' plugins bring svc, mpi ssh too."""

    options: Mapping[str, Mapping[str, str]]

    def complete(self, manifest: Manifest, job: Job, role: Role, index: int, roles: Sequence[Role]) -> None:
        """Add to a pod what they are for."""
        spec = manifest["spec"]
        if "env" in self.options:
            add_env(spec, {"VK_TASK_INDEX": index, "VC_TASK_INDEX": index})
        if "svc" in self.options:
            _find_each_other(manifest, job, roles)
        if "ssh" in self.options:
            _let_each_other_in(spec, job, self.options["ssh"])
        for name, add in _FRAMEWORKS.items():
            if name in self.options:
                add(spec, job, role, index, roles, self.options[name])

    def objects(self, job: Job, roles: Sequence[Role]) -> list[Manifest]:
        """The services, host files and keys that go with the pods."""
        objects = []
        if "svc" in self.options:
            selector = {"volcano.sh/job-name": job.name, "volcano.sh/job-namespace": job.namespace}
            is_early = self.options["svc"].get("publish-not-ready-addresses", "false") != "false"
            objects.append(job.headless_service(job.name, selector, is_early=is_early))
            objects.append(job.object("v1", "ConfigMap", f"{job.name}-svc", data=_host_files(job, roles)))
        if "ssh" in self.options:
            options = self.options["ssh"]
            if "ssh-private-key" in options and "ssh-public-key" in options:
                private, public = options["ssh-private-key"].encode(), options["ssh-public-key"].encode()
            else:
                from hived_deploy.certificates import ssh_key_pair  # noqa: PLC0415  # as in `mpi`

                private, public = ssh_key_pair()
            files = {"id_rsa": private, "id_rsa.pub": public, "authorized_keys": public, "config": _SSH_CONFIG.encode()}
            data = {name: b64encode(content).decode() for name, content in files.items()}
            objects.append(job.object("v1", "Secret", f"{job.name}-ssh", data=data))
        return objects


def read_plugins(spec: Section) -> Plugins:
    """`spec.plugins`; one that is not known is a warning: it may matter to its program or not."""
    section = spec.section("plugins")
    options = {}
    for name in section:
        if name in KNOWN:
            options[name] = _options(section.texts(name))
        else:
            section.warn(name, f"not honoured: expected {', '.join(KNOWN)}")
            section.skip(name)
    if options.keys() & {"pytorch", "tensorflow", "mpi"}:
        options.setdefault("svc", {})
    if "mpi" in options:
        options.setdefault("ssh", {})
    return Plugins(options)


def _options(words: Sequence[str]) -> dict[str, str]:
    """Command line options: `--port=22`, `--port 22`, `--flag`."""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, _, value = word.lstrip("-").partition("=")
            options[name] = value or "true"
        elif name:
            options[name] = word
    return options


def _hosts(job: Job, roles: Sequence[Role], name: str) -> list[str]:
    """The names in DNS of a task's pods."""
    hosts = []
    for role in roles:
        if role.name != name:
            continue
        written = role.template["spec"]
        subdomain = written.get("subdomain") or job.name
        if written.get("hostname"):
            return [f"{written['hostname']}.{subdomain}"]
        hosts = [f"{job.name}-{role.name}-{index}.{subdomain}" for index in range(role.replicas)]
    return hosts


def _variable(role: Role) -> str:
    return role.name.replace("-", "_")


def _host_files(job: Job, roles: Sequence[Role]) -> dict[str, str]:
    files = {}
    for role in roles:
        hosts, name = _hosts(job, roles, role.name), _variable(role)
        files[f"{name}.host"] = "\n".join(hosts)
        files[f"VC_{name.upper()}_HOSTS"] = ",".join(hosts)
        files[f"VC_{name.upper()}_NUM"] = str(len(hosts))
    return files


def _find_each_other(manifest: Manifest, job: Job, roles: Sequence[Role]) -> None:
    spec, config = manifest["spec"], f"{job.name}-svc"
    spec.setdefault("hostname", manifest["metadata"]["name"])
    spec.setdefault("subdomain", job.name)
    names = [f"VC_{_variable(role).upper()}_{what}" for role in roles for what in ("HOSTS", "NUM")]
    add_env(spec, {name: {"valueFrom": {"configMapKeyRef": {"name": config, "key": name}}} for name in names})
    mount(spec, config, _HOSTS_FOLDER, {"configMap": {"name": config}})


def _let_each_other_in(spec: Manifest, job: Job, options: Mapping[str, str]) -> None:
    folder = options.get("ssh-key-file-path", "/root/.ssh")
    mount(spec, f"{job.name}-ssh", folder, {"secret": {"secretName": f"{job.name}-ssh", "defaultMode": 0o600}})


def _pytorch(
    spec: Manifest, job: Job, role: Role, index: int, roles: Sequence[Role], options: Mapping[str, str]
) -> None:
    master, worker = options.get("master", "master"), options.get("worker", "worker")
    hosts = _hosts(job, roles, master)
    if not hosts or role.name not in (master, worker):
        return
    add_env(spec, {
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": options.get("port", "23456"),
        "WORLD_SIZE": sum(one.replicas for one in roles if one.name in (master, worker)),
        "RANK": index + 1 if role.name == worker else 0,
    })  # fmt: skip


def _tensorflow(
    spec: Manifest, job: Job, role: Role, index: int, roles: Sequence[Role], options: Mapping[str, str]
) -> None:
    if sum(one.replicas for one in roles) < 2:
        return
    task_of = {options.get(kind, kind): kind for kind in ("ps", "worker", "chief", "evaluator")}
    port = options.get("port", "2222")
    cluster = {
        task_of[one.name]: [f"{host}:{port}" for host in _hosts(job, roles, one.name)]
        for one in roles
        if one.name in task_of
    }
    config = {"cluster": cluster, "task": {"type": task_of.get(role.name, role.name), "index": index}}
    add_env(spec, {"TF_CONFIG": msgspec.json.encode(config).decode()})


def _mpi(spec: Manifest, job: Job, role: Role, index: int, roles: Sequence[Role], options: Mapping[str, str]) -> None:
    if role.name == options.get("master", "master"):
        add_env(spec, {"MPI_HOST": ",".join(_hosts(job, roles, options.get("worker", "worker")))})


_Framework = Callable[[Manifest, Job, Role, int, Sequence[Role], Mapping[str, str]], None]
_FRAMEWORKS: Mapping[str, _Framework] = {"pytorch": _pytorch, "tensorflow": _tensorflow, "mpi": _mpi}


MAX_RETRIES = 3
"""Volcano's default of maxRetry."""

_EVENTS = {event.value: event for event in Event if event is not Event.POD_SUCCEEDED}
_ACTIONS = {action.value: action for action in Action if action not in (Action.CLEAN_UP, Action.FAIL_JOB)}
_OTHER_EVENTS = ("PodPending", "PodRunning", "Unknown", "OutOfSync", "CommandIssued", "JobUpdated", "JobUnknown")
_OTHER_ACTIONS = ("RestartPartition", "ResumeJob", "SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue")


def plan_volcano_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, task by task, as one gang with its tasks' minimums. Raises UserError, with file, line and place."""
    root = document.section()
    spec = root.section("spec")
    job = read_job(root, submission, (spec, "queue"))
    sections = spec.sections("tasks")
    roles = [read_role(one, one.text("name", f"default{index}")) for index, one in enumerate(sections)]
    if not roles:
        raise spec.refuse("tasks", "missing; expected at least one task")
    names = [role.name for role in roles]
    for one, name in zip(sections, names, strict=True):
        if names.count(name) > 1:
            raise one.refuse("name", f"several tasks are named {name}")
        one.warn_unused(
            topologyPolicy="NUMA nodes are not known to hived",
            maxRetry="the job's maxRetry counts",
            dependsOn="all tasks start together, as one gang",
            partitionPolicy="a task's pods are not divided further",
        )
    spec.warn_unused(
        ttlSecondsAfterFinished="finished pods stay until they are deleted",
        runningEstimate="pods run until they end",
        minSuccess="the job is complete when all its pods have succeeded, or a policy says so",
    )
    plugins = read_plugins(spec)
    policies = [policy for one, name in zip(sections, names, strict=True) for policy in _policies(one, name)]
    rules = Rules((*policies, *_policies(spec, "")), spec.whole("maxRetry", MAX_RETRIES))
    job = replace(
        job,
        priority_class=spec.text("priorityClassName", ""),
        scheduler=_scheduler(spec),
        annotations=_gang(job, spec, roles) | _topology_wish(spec),
    )
    volumes = _volumes(spec)
    pods = [_pod(job, spec, role, index, roles, plugins, volumes) for role in roles for index in range(role.replicas)]
    return job.planned(document, pods, objects=plugins.objects(job, roles), rules=rules)


def pod_name(job: Job, role: Role, index: int) -> str:
    """As Volcano names it."""
    return f"{job.name}-{role.name}-{index}"


def _pod(
    job: Job, spec: Section, role: Role, index: int, roles: Sequence[Role], plugins: Plugins, volumes: Mapping[str, str]
) -> PlannedPod:
    said = {"volcano.sh/job-name": job.name, "volcano.sh/task-spec": role.name, "volcano.sh/task-index": str(index)}
    labels = said | {"volcano.sh/job-namespace": job.namespace, "volcano.sh/queue-name": spec.text("queue", "default")}
    pod = job.pod(role, pod_name(job, role, index), labels, said)
    for path, claim in volumes.items():
        mount(pod.manifest["spec"], f"{claim}-volume", path, {"persistentVolumeClaim": {"claimName": claim}})
    plugins.complete(pod.manifest, job, role, index, roles)
    return pod


def _gang(job: Job, spec: Section, roles: Sequence[Role]) -> dict[str, str]:
    """Minimums of tasks count only where the job's own minimum is not below their sum."""
    written = {role.name: role.section.whole("minAvailable") for role in roles if "minAvailable" in role.section}
    for role in roles:
        role.section.skip("minAvailable")
        if written.get(role.name, 0) > role.replicas:
            message = (
                f"found {written[role.name]}, but the task has {counted(role.replicas, 'pod')} and would never start"
            )
            raise role.section.refuse("minAvailable", message)
    by_task = {role.name: written.get(role.name, role.replicas) for role in roles}
    least = sum(by_task.values())
    minimum = spec.whole("minAvailable", least)
    counts = written and minimum >= least
    minimums = {name: count for name, count in by_task.items() if count} if counts else None
    return gang_of(job, roles, minimum, (spec, "minAvailable"), minimums)


def _scheduler(spec: Section) -> str:
    name = spec.text("schedulerName", "volcano")
    if name == "volcano" and "schedulerName" in spec:
        spec.warn("schedulerName", "volcano would not be hived; another scheduler takes its place")
    return name


def _topology_wish(spec: Section) -> dict[str, str]:
    """A tier is called volcano-tier-N, as the configuration's topologyLevels has it."""
    wish = spec.section("networkTopology")
    if "networkTopology" not in spec:
        return {}
    mode, tier = wish.text("mode", "hard"), wish.whole("highestTierAllowed", 1, 1)
    if mode not in ("hard", "soft"):
        raise wish.refuse("mode", f"found {mode!r}, expected hard or soft")
    return {kueue.REQUIRED if mode == "hard" else kueue.PREFERRED: TIER.format(tier)}


def _volumes(spec: Section) -> dict[str, str]:
    """The claims that every container mounts, by path."""
    volumes = {}
    for one in spec.sections("volumes"):
        if "volumeClaim" in one:
            one.warn("volumeClaim", "not honoured: create the claim yourself and name it as volumeClaimName")
        one.skip("volumeClaim")
        if "volumeClaimName" in one:
            volumes[one.text("mountPath")] = one.text("volumeClaimName")
    return volumes


def _policies(section: Section, task: str) -> list[Policy]:
    return [_policy(one, task) for one in section.sections("policies")]


def _policy(section: Section, task: str) -> Policy:
    """Read a policy; events and actions that nothing here acts on are refused, since they would silently do nothing."""
    section.warn_unused(timeout="actions are taken at once")
    action = section.text("action")
    if action in _OTHER_ACTIONS:
        raise section.refuse("action", f"{action} is not acted on; expected {', '.join(_ACTIONS)}")
    if action not in _ACTIONS:
        raise section.refuse("action", f"found {action!r}, expected {', '.join(_ACTIONS)}")
    names = section.texts("events") + ([section.text("event")] if "event" in section else [])
    if "exitCode" in section:
        code = section.whole("exitCode", minimum=1, maximum=255)
        if names:
            raise section.refuse("exitCode", "event and exitCode exclude each other")
        return Policy(_ACTIONS[action], task=task, exit_codes=(code, code))
    if not names:
        raise section.refuse("", f"expected an event ({', '.join(_EVENTS)}) or an exitCode")
    key = "event" if "event" in section else "events"
    for name in names:
        if name in _OTHER_EVENTS:
            raise section.refuse(key, f"{name} is not acted on; expected {', '.join(_EVENTS)}")
        if name not in _EVENTS:
            raise section.refuse(key, f"found {name!r}, expected {', '.join(_EVENTS)}")
    return Policy(_ACTIONS[action], tuple(_EVENTS[name] for name in names), task)
