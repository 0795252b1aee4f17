"""The plugins of a Volcano Job add to its pods names in DNS, keys, and variables of frameworks."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hived_jobs.documents import Section
from hived_jobs.roles import Job, Role, add_env, mount
from hived_jobs.submission import Manifest

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
                from hived_extender.deploy.certificates import ssh_key_pair  # noqa: PLC0415  # as in `mpi`

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
