"""DLRover's ElasticJob (elastic.iml.github.io/v1alpha1): the pods that its master would create.

The master itself, which makes a job elastic, talks to DLRover's own API objects and is not started; a template under
`dlrover-master` becomes a pod as it is. Without words of a gang in the templates every pod starts by itself.
"""

from hived_extender.jobs.kinds.dlrover import MASTER
from hived_jobs.documents import Document
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.submission import PlannedJob, PlannedPod, Role, Submission, add_env, read_job, read_role

LABELS = "elasticjob.dlrover/"

_RESTARTS = 3
"""DLRover's default for a failed pod."""


def plan_elastic_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods, role by role; none is created at first if the job is suspended. Raises UserError."""
    root = document.section()
    spec = root.section("spec")
    job = read_job(root, submission)
    strategy = spec.text("distributionStrategy", "AllreduceStrategy")
    is_suspended = spec.flag("suspend", False)
    spec.warn_unused(
        optimizeMode="the number of pods stays as submitted",
        brainService="the number of pods stays as submitted",
        resourceLimits="the virtual cluster is the limit",
        enableElasticScheduling="the number of pods stays as submitted",
        enableDynamicSharding="that takes DLRover's master",
    )
    envs = spec.section("envs")
    variables = {
        name: {key: value for key, value in _plain(envs.plain(name)).items() if key != "name"} for name in envs
    }
    specs = spec.section("replicaSpecs")
    roles: list[Role] = []
    retries = 0
    for name, section in specs.members().items():
        retries = max(retries, section.whole("restartCount", _RESTARTS))
        section.warn_unused(
            autoScale="the number of pods stays as submitted",
            restartTimeout="a pod that hangs is not noticed",
            priority="set priorityClassName in the template",
            minReplicas="say it in the template, as min-available of a gang",
        )
        roles.append(read_role(section, name, restart_policy=section.text("restartPolicy", "")))
    if not roles:
        raise spec.refuse("replicaSpecs", "missing; expected at least one role, such as worker")
    counts = {role.name: role.replicas for role in roles}
    pods = []
    for role in roles:
        for index in range(role.replicas):
            number = {} if role.name == MASTER else {"replica-index": str(index), "rank-index": str(index)}
            labels = {"app": "dlrover", f"{LABELS}name": job.name, f"{LABELS}replica-type": role.name}
            labels |= {f"{LABELS}{key}": value for key, value in number.items()}
            name = (
                f"elasticjob-{job.name}-{MASTER}" if role.name == MASTER else f"{job.name}-edljob-{role.name}-{index}"
            )
            pod = job.pod(role, name, labels)
            add_env(pod.manifest["spec"], variables)
            if role.name != MASTER:
                _tell(pod, job.name, role, index, counts.get("worker", 0), strategy)
            pods.append(pod)
    services = [
        job.headless_service(
            pod.name,
            {key: value for key, value in pod.manifest["metadata"]["labels"].items() if key.startswith(LABELS)},
        )
        for pod in pods
    ]
    rules = Rules((Policy(Action.RESTART_POD, (Event.POD_FAILED,)),), retries)
    return job.planned(document, pods, objects=services, rules=rules, is_suspended=is_suspended)


def _tell(pod: PlannedPod, job_name: str, role: Role, index: int, workers: int, strategy: str) -> None:
    """Set the variables that DLRover's agents read."""
    address = {f"{kind}_IP": {"valueFrom": {"fieldRef": {"fieldPath": f"status.{field}"}}}
               for kind, field in (("POD", "podIP"), ("NODE", "hostIP"))}  # fmt: skip
    env = {
        **address,
        "JOB_NAME": job_name,
        "NODE_TYPE": role.name,
        "NODE_ID": index,
        "NODE_NUM": workers,
        "NODE_RANK": index,
        "WORKER_TYPE": role.name,
        "WORKER_ID": index,
        "WORKER_NUM": workers,
        "WORKER_RANK": index,
        "DLROVER_MASTER_ADDR": f"elasticjob-{job_name}-{MASTER}:50001",
    }
    if strategy == "AllreduceStrategy":
        env |= {"WORLD_SIZE": workers, "RANK": index}
    add_env(pod.manifest["spec"], env)


def _plain(value: object) -> dict[str, object]:
    """A variable as the API has it: a mapping with a value or a valueFrom."""
    return value if isinstance(value, dict) else {"value": "" if value is None else str(value)}
