"""Kubeflow's MPIJob, in both versions that are in use.

`kubeflow.org/v1` starts processes on workers with kubectl exec: the launcher needs a kubectl (an init container brings
it) and the right to use it. `kubeflow.org/v2beta1` uses ssh, with a key pair made for the job.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence

from hived_extender.job_kinds.kubeflow import REPLICA_SPECS
from hived_jobs.documents import Document, Section
from hived_jobs.kubeflow import RunPolicy, begin, labels_of, read_roles, with_gang
from hived_jobs.roles import Job, Role, add_env, mount
from hived_jobs.submission import PlannedJob, PlannedPod, Submission

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
    from hived_extender.deploy.certificates import ssh_key_pair  # noqa: PLC0415  # a library that few jobs need

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
