"""Jobs of Kubeflow's training-operator: the pods, services and variables of its operators.

MPIJob of `kubeflow.org/v1` starts processes on workers with kubectl exec: the launcher needs a kubectl (an init
container brings it) and the right to use it. `kubeflow.org/v2beta1` uses ssh, with a key pair made for the job.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from hived_jobs.documents import Document, Section
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.submission import (
    Job,
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

LABELS = "training.kubeflow.org/"
RETRYABLE_EXIT_CODES = (128, 255)
"""The exit codes of machine faults, which restartPolicy ExitCode tries again; lower ones are the program's."""

_RESTART_POLICIES = {"Always": "Always", "OnFailure": "OnFailure", "Never": "Never", "ExitCode": "Never"}
_CLEAN = {"None": None, "Running": Action.COMPLETE_JOB, "All": Action.CLEAN_UP}


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The policy of a Kubeflow job's run as a whole. `scheduling` is the section with the gang's keys."""

    scheduling: Section
    minimum: int | None
    waiting_s: int
    priority_class: str
    clean: Action | None
    max_retries: int | None
    is_suspended: bool

    @property
    def queue(self) -> tuple[Section, str]:
        """The field that may name a queue."""
        return self.scheduling, "queue"

    def fate(self, roles: Sequence[Role], deciding: str) -> dict[str, Any]:
        """Fields of a plan: suspension, restarts, and the clean-up once the role `deciding` has succeeded."""
        retries = tuple(
            Policy(Action.RESTART_POD, task=role.name, exit_codes=RETRYABLE_EXIT_CODES)
            for role in roles
            if role.retries_codes
        )
        end = (Policy(self.clean, (Event.TASK_COMPLETED,), task=deciding),) if self.clean else ()
        return {"is_suspended": self.is_suspended, "rules": Rules(retries + end, self.max_retries)}


def read_run_policy(spec: Section) -> RunPolicy:
    """`spec.runPolicy`."""
    policy = spec.section("runPolicy")
    scheduling = policy.section("schedulingPolicy")
    clean = policy.text("cleanPodPolicy", "None")
    if clean not in _CLEAN:
        raise policy.refuse("cleanPodPolicy", f"found {clean!r}, expected {', '.join(_CLEAN)}")
    policy.warn_unused(
        activeDeadlineSeconds="pods run until they end",
        ttlSecondsAfterFinished="finished pods stay until they are deleted",
        managedBy="there is no controller to name",
    )
    scheduling.warn_unused(minResources="cells are counted from the pods")
    scheduling.skip("queue")
    return RunPolicy(
        scheduling,
        scheduling.whole("minAvailable", minimum=1) if "minAvailable" in scheduling else None,
        scheduling.whole("scheduleTimeoutSeconds", 0),
        scheduling.text("priorityClass", ""),
        _CLEAN[clean],
        policy.whole("backoffLimit") if "backoffLimit" in policy else None,
        policy.flag("suspend", False),
    )


def read_roles(spec: Section, key: str, known: Sequence[str], default_restart: str) -> list[Role]:
    """The roles of a job in the order of `known`. Raises UserError for others, or if there is none."""
    by_name = {name.lower(): name for name in known}
    specs = spec.section(key)
    roles: dict[str, Role] = {}
    for name, section in specs.members().items():
        kind = by_name.get(name.lower(), "")
        if not kind:
            raise specs.refuse(name, f"no such replica type; expected {', '.join(known)}")
        if kind in roles:
            raise specs.refuse(name, f"{kind} is there already")
        restart = section.text("restartPolicy", default_restart)
        if restart not in _RESTART_POLICIES:
            raise section.refuse("restartPolicy", f"found {restart!r}, expected {', '.join(_RESTART_POLICIES)}")
        roles[kind] = read_role(
            section, name, restart_policy=_RESTART_POLICIES[restart], retries_codes=restart == "ExitCode"
        )
    if not any(role.replicas for role in roles.values()):
        raise spec.refuse(key, f"missing; expected at least one replica of {', '.join(known)}")
    return [roles[name] for name in known if name in roles]


def labels_of(job: Job, role: Role, index: int) -> dict[str, str]:
    """The labels that the operator writes onto a pod, and selects it by."""
    return {
        f"{LABELS}job-name": job.name,
        f"{LABELS}operator-name": f"{job.kind.lower()}-controller",
        f"{LABELS}replica-type": role.name,
        f"{LABELS}replica-index": str(index),
    }


def begin(document: Document, submission: Submission) -> tuple[Job, Section, RunPolicy]:
    """The job, its spec and its run policy."""
    root = document.section()
    spec = root.section("spec")
    policy = read_run_policy(spec)
    job = read_job(root, submission, policy.queue)
    return job, spec, policy


def with_gang(job: Job, policy: RunPolicy, roles: Sequence[Role]) -> Job:
    """The job with the annotations of its gang and the priority class of its run policy."""
    words = gang_of(job, roles, policy.minimum, (policy.scheduling, "minAvailable"), waiting_s=policy.waiting_s)
    return replace(job, annotations=words, priority_class=policy.priority_class)


def plan_pytorch_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, role by role, as one gang. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Master", "Worker"), "OnFailure")
    job = with_gang(job, policy, roles)
    leader = roles[0]
    port = _port(leader, "pytorch", "pytorchjob-port", 23456)
    world = sum(role.replicas for role in roles)
    common: dict[str, Any] = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": f"{job.name}-{leader.name}-0",
        "MASTER_PORT": port,
        "WORLD_SIZE": world,
    }
    common |= _torchrun(spec, job, common, world)
    pods, rank = [], 0
    for role in roles:
        for index in range(role.replicas):
            labels = labels_of(job, role, index)
            if role.name == "master":
                labels[f"{LABELS}job-role"] = "master"
            pod = job.pod(role, f"{job.name}-{role.name}-{index}", labels)
            rank_key = {"PET_NODE_RANK": rank} if "PET_NNODES" in common and "PET_RDZV_ID" not in common else {}
            add_env(pod.manifest["spec"], {**common, "RANK": rank, **rank_key})
            pods.append(pod)
            rank += 1
    ports = [{"name": "pytorchjob-port", "port": port}]
    service = job.headless_service(f"{job.name}-{leader.name}-0", labels_of(job, leader, 0), ports)
    return job.planned(document, pods, objects=[service], **policy.fate(roles, leader.name))


def _torchrun(spec: Section, job: Job, common: Mapping[str, Any], world: int) -> dict[str, Any]:
    """The variables that torchrun reads as its options."""
    processes = spec.text("nprocPerNode", "")
    env: dict[str, Any] = {"PET_NPROC_PER_NODE": processes} if processes else {}
    elastic = spec.section("elasticPolicy")
    if "elasticPolicy" not in spec:
        return env | {
            "PET_NNODES": world, "PET_MASTER_ADDR": common["MASTER_ADDR"], "PET_MASTER_PORT": common["MASTER_PORT"],
        }  # fmt: skip
    least, most = elastic.whole("minReplicas", world, 1), elastic.whole("maxReplicas", world, 1)
    if least > most:
        raise elastic.refuse("minReplicas", f"found {least}, more than maxReplicas {most}")
    host, port = elastic.text("rdzvHost", common["MASTER_ADDR"]), elastic.whole("rdzvPort", common["MASTER_PORT"])
    env |= {
        "PET_NNODES": f"{least}:{most}",
        "PET_RDZV_BACKEND": elastic.text("rdzvBackend", "c10d"),
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_ID": elastic.text("rdzvId", job.name),
    }
    if "nProcPerNode" in elastic:
        env["PET_NPROC_PER_NODE"] = elastic.text("nProcPerNode")
    if "maxRestarts" in elastic:
        env["PET_MAX_RESTARTS"] = elastic.whole("maxRestarts")
    if elastic.flag("standalone", False):
        env["PET_STANDALONE"] = ""
    conf = elastic.sections("rdzvConf")
    if conf:
        env["PET_RDZV_CONF"] = ",".join(f"{one.text('key')}={one.text('value')}" for one in conf)
    elastic.warn_unused(metrics="the number of pods stays as submitted")
    return env


def plan_tensorflow_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, role by role, as one gang. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Chief", "Master", "PS", "Worker", "Evaluator"), "Never")
    job = with_gang(job, policy, roles)
    spec.warn_unused(enableDynamicWorker="TF_CONFIG names all workers")
    success = spec.text("successPolicy", "")
    if success not in ("", "AllWorkers"):
        raise spec.refuse("successPolicy", f"found {success!r}, expected AllWorkers or nothing")
    ports = {role.name: _port(role, "tensorflow", "tfjob-port", 2222) for role in roles}
    cluster = {
        role.name: [f"{job.name}-{role.name}-{i}.{job.namespace}.svc:{ports[role.name]}" for i in range(role.replicas)]
        for role in roles
        if role.name != "evaluator"
    }
    is_distributed = sum(role.replicas for role in roles) > 1
    pods, services = [], []
    for role in roles:
        for index in range(role.replicas):
            name, labels = f"{job.name}-{role.name}-{index}", labels_of(job, role, index)
            pod = job.pod(role, name, labels)
            if is_distributed:
                task = {"type": role.name, "index": index}
                config = {"cluster": cluster, "task": task, "environment": "cloud"}
                add_env(pod.manifest["spec"], {"TF_CONFIG": msgspec.json.encode(config).decode()}, "tensorflow")
            pods.append(pod)
            port = {"name": "tfjob-port", "port": ports[role.name]}
            services.append(job.headless_service(name, labels, [port], is_early=True))
    names = [role.name for role in roles]
    deciding = next((name for name in ("chief", "master") if name in names and not success), "worker")
    return job.planned(document, pods, objects=services, **policy.fate(roles, deciding))


def plan_xgboost_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, role by role, as one gang; also of LightGBM. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Master", "Worker"), "Never")
    if roles[0].name != "master":
        raise spec.refuse(REPLICA_SPECS[job.kind], "found no Master; expected one")
    ports = [_port(role, "xgboost", "xgboostjob-port", 9999) for role in roles]
    world = sum(role.replicas for role in roles)
    common = {"MASTER_ADDR": f"{job.name}-master-0", "MASTER_PORT": ports[0], "WORLD_SIZE": world}
    if world > 1:
        workers = [f"{job.name}-worker-{index}" for index in range(world - 1)]
        common |= {"WORKER_PORT": ports[-1], "WORKER_ADDRS": ",".join(workers)}
    return _with_services(
        document, job, policy, roles, ("xgboostjob-port", ports), lambda role, rank: {**common, "RANK": rank}
    )


def plan_paddle_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, role by role, as one gang. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Master", "Worker"), "OnFailure")
    spec.section("elasticPolicy").warn_unused(metrics="the number of pods stays as submitted")
    spec.section("elasticPolicy").skip("minReplicas", "maxReplicas", "maxRestarts")
    ports = [_port(role, "paddle", "master", 36543) for role in roles]
    common = {"PADDLE_JOB_ID": job.name, "PADDLE_NNODES": sum(role.replicas for role in roles)}
    has_servers = roles[0].name == "master"

    def env(role: Role, rank: int) -> dict[str, Any]:
        own = {"POD_IP_DUMMY": {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}} if rank == 0 else {}
        host = "$(POD_IP_DUMMY)" if rank == 0 else f"{job.name}-{roles[0].name}-0"
        part = {"PADDLE_SERVER_NUM" if role.name == "master" else "PADDLE_TRAINER_NUM": 1} if has_servers else {}
        return {**common, **own, "PADDLE_MASTER": f"{host}:{ports[0]}", **part}

    return _with_services(document, job, policy, roles, ("master", ports), env)


def plan_jax_job(document: Document, submission: Submission) -> PlannedJob:
    """The workers as one gang. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Worker",), "Never")
    ports = [_port(role, "jax", "jaxjob-port", 6666) for role in roles]
    common = {
        "COORDINATOR_ADDRESS": f"{job.name}-worker-0",
        "COORDINATOR_PORT": ports[0],
        "NUM_PROCESSES": roles[0].replicas,
    }
    return _with_services(
        document, job, policy, roles, ("jaxjob-port", ports), lambda role, rank: {**common, "PROCESS_ID": rank}
    )


def _with_services(
    document: Document,
    job: Job,
    policy: RunPolicy,
    roles: Sequence[Role],
    port: tuple[str, Sequence[int]],
    env: Callable[[Role, int], Mapping[str, Any]],
) -> PlannedJob:
    """The pods of a job, each with a service of its name; `port` is its name and its number by role.

    `env` gives the variables of a pod, by its role and its number among all. The first role decides how the job ends.
    """
    job = with_gang(job, policy, roles)
    pods, services = list[PlannedPod](), []
    for role, number in zip(roles, port[1], strict=True):
        for index in range(role.replicas):
            name, labels = f"{job.name}-{role.name}-{index}", labels_of(job, role, index)
            pod = job.pod(role, name, labels)
            add_env(pod.manifest["spec"], {"PYTHONUNBUFFERED": "1", **env(role, len(pods))})
            pods.append(pod)
            services.append(job.headless_service(name, labels, [{"name": port[0], "port": number}]))
    return job.planned(document, pods, objects=services, **policy.fate(roles, roles[0].name))


def _port(role: Role, container: str, port: str, default: int) -> int:
    """The number of the port of that name, of the container that trains if one is called so."""
    for one in role.template["spec"]["containers"]:
        for each in one.get("ports") or ():
            if isinstance(each, dict) and each.get("name") == port and one.get("name", container) == container:
                return int(each.get("containerPort") or default)
    return default


KUBECTL_IMAGE = "mpioperator/kubectl-delivery:latest"
"""Brings kubectl into the launcher's pod: the image that the operator uses."""

_MPI_FOLDER = "/etc/mpi"
_EXEC_SCRIPT = """\
#!/bin/sh
# mpirun calls this as it would call ssh: host, then the command.
host=$1
shift
exec /opt/kube/kubectl exec "$host" -- /bin/sh -c "$*"
"""


def plan_mpi_job(document: Document, submission: Submission) -> PlannedJob:
    """Launcher and workers as one gang. Raises UserError, with file, line and place."""
    job, spec, policy = begin(document, submission)
    has_ssh = job.root.text("apiVersion").endswith("v2beta1")
    roles = read_roles(spec, REPLICA_SPECS[job.kind], ("Launcher", "Worker"), "Never")
    slots = spec.whole("slotsPerWorker", 1, 1)
    if "cleanPodPolicy" in spec:
        spec.warn("cleanPodPolicy", "not honoured here; it belongs into runPolicy")
    spec.skip("cleanPodPolicy")
    job = with_gang(job, policy, roles)
    return (_with_ssh if has_ssh else _with_kubectl)(document, job, spec, policy, roles, slots)


def _with_kubectl(
    document: Document, job: Job, spec: Section, policy: RunPolicy, roles: Sequence[Role], slots: int
) -> PlannedJob:
    spec.skip("mainContainer")
    account, config = f"{job.name}-launcher", f"{job.name}-config"
    hosts = _pod_names(job, roles, "worker")
    files = {"hostfile": _lines(f"{host} slots={slots}" for host in hosts), "kubexec.sh": _EXEC_SCRIPT}
    env = {
        "OMPI_MCA_plm_rsh_agent": f"{_MPI_FOLDER}/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": f"{_MPI_FOLDER}/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
    }
    pods = _pods(job, roles)
    for pod in pods:
        inside = pod.manifest["spec"]
        if pod.role == "worker":
            for container in inside["containers"][:1]:
                container.setdefault("command", ["sleep", "365d"])
            continue
        inside.setdefault("serviceAccountName", account)
        add_env(inside, env)
        mount(inside, "mpi-job-config", _MPI_FOLDER, {"configMap": {"name": config, "defaultMode": 0o555}})
        deliver = {
            "name": "kubectl-delivery",
            "image": KUBECTL_IMAGE,
            "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}],
        }
        inside["initContainers"] = [deliver, *(inside.get("initContainers") or ())]
        mount(inside, "mpi-job-kubectl", "/opt/kube", {"emptyDir": {}})
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"], "resourceNames": hosts},
    ]
    subject = {"kind": "ServiceAccount", "name": account, "namespace": job.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    objects = [
        job.object("v1", "ConfigMap", config, data=files),
        job.object("v1", "ServiceAccount", account),
        job.object(rbac, "Role", account, rules=rules),
        job.object(rbac, "RoleBinding", account, subjects=[subject], roleRef=role),
    ]
    return job.planned(document, pods, objects=objects, **policy.fate(roles, "launcher"))


def _with_ssh(
    document: Document, job: Job, spec: Section, policy: RunPolicy, roles: Sequence[Role], slots: int
) -> PlannedJob:
    kind = spec.text("mpiImplementation", "OpenMPI")
    if kind not in ("OpenMPI", "Intel", "MPICH"):
        raise spec.refuse("mpiImplementation", f"found {kind!r}, expected OpenMPI, Intel or MPICH")
    folder = spec.text("sshAuthMountPath", "/root/.ssh")
    launcher_is_worker = spec.flag("runLauncherAsWorker", False)
    creation = spec.text("launcherCreationPolicy", "AtStartup")
    if creation != "AtStartup":
        spec.warn("launcherCreationPolicy", "not honoured: launcher and workers start together, as one gang")
    names = _pod_names(job, roles, "launcher") if launcher_is_worker else []
    hosts = [f"{name}.{job.name}.{job.namespace}.svc" for name in [*names, *_pod_names(job, roles, "worker")]]
    entry = "{} slots={}" if kind == "OpenMPI" else "{}:{}"
    config, secret = f"{job.name}-config", f"{job.name}-ssh"
    files = {"hostfile": _lines(entry.format(host, slots) for host in hosts)}
    env = {
        "OpenMPI": {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": f"{_MPI_FOLDER}/hostfile",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "OMPI_MCA_orte_set_default_slots": str(slots),
        },
        "Intel": {
            "I_MPI_HYDRA_HOST_FILE": f"{_MPI_FOLDER}/hostfile",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
            "I_MPI_PERHOST": str(slots),
        },
        "MPICH": {"HYDRA_HOST_FILE": f"{_MPI_FOLDER}/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
    }[kind]
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa"},
        {"key": "ssh-publickey", "path": "id_rsa.pub"},
        {"key": "ssh-publickey", "path": "authorized_keys"},
    ]
    pods = _pods(job, roles, subdomain=job.name)
    for pod in pods:
        inside = pod.manifest["spec"]
        mount(inside, "ssh-auth", folder, {"secret": {"secretName": secret, "defaultMode": 0o600, "items": items}})
        if pod.role == "worker":
            for container in inside["containers"][:1]:
                if not container.get("command") and not container.get("args"):
                    container["command"] = ["/usr/sbin/sshd", "-De"]
            continue
        # The launcher starts processes and uses no device itself, unless it is a worker too.
        hidden = {} if launcher_is_worker else {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
        add_env(inside, {**env, **hidden})
        mount(inside, "mpi-job-config", _MPI_FOLDER, {"configMap": {"name": config}})
    from hived_deploy.certificates import ssh_key_pair  # noqa: PLC0415  # a library that few jobs need

    private, public = ssh_key_pair()
    keys = {"ssh-privatekey": b64encode(private).decode(), "ssh-publickey": b64encode(public).decode()}
    objects = [
        job.headless_service(job.name, {"training.kubeflow.org/job-name": job.name}, is_early=True),
        job.object("v1", "ConfigMap", config, data=files),
        job.object("v1", "Secret", secret, type="kubernetes.io/ssh-auth", data=keys),
    ]
    return job.planned(document, pods, objects=objects, **policy.fate(roles, "launcher"))


def _pods(job: Job, roles: Sequence[Role], subdomain: str = "") -> list[PlannedPod]:
    return [
        job.pod(role, name, labels_of(job, role, index), hostname=name if subdomain else "", subdomain=subdomain)
        for role in roles
        for index, name in enumerate(_pod_names(job, [role], role.name))
    ]


def _pod_names(job: Job, roles: Sequence[Role], role_name: str) -> list[str]:
    """A single launcher has no number."""
    return [
        f"{job.name}-launcher" if role_name == "launcher" and role.replicas == 1 else f"{job.name}-{role.name}-{index}"
        for role in roles
        if role.name == role_name
        for index in range(role.replicas)
    ]


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
