"""A job file of every kind that another controller has, for whoever submits them."""

from hived_extender.jobs.kinds.koordinator import PREFIX as GANG
from hived_jobs.kinds import plan_jobs
from hived_jobs.submission import PlannedPod, Submission

TEMPLATE = """\
template:
  metadata: {labels: {team: x}, annotations: {note: "1"}}
  spec:
    containers:
    - name: CONTAINER
      image: example/train
      resources: {limits: {nvidia.com/gpu: 2}}
"""

NEVER = {"  spec:": "  spec:\n    restartPolicy: Never"}
"""Kubernetes wants it of a batch Job."""


def plan_file(file: str, submission: Submission) -> tuple[list[PlannedPod], list[str]]:
    """All pods of a file that are to be created now, and its warnings."""
    jobs, warnings = plan_jobs(file, submission)
    return [pod for job in jobs for pod in job.first_pods()], warnings


def template(container: str, indent: int, **changes: str) -> str:
    text = TEMPLATE.replace("CONTAINER", container)
    for old, new in changes.items():
        text = text.replace(old, new)
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


PYTORCH = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: train}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
{template("pytorch", 6)}
    Worker:
      replicas: 2
{template("pytorch", 6)}
"""
TENSORFLOW = f"""\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {{name: tf, namespace: lab}}
spec:
  runPolicy:
    cleanPodPolicy: Running
    schedulingPolicy: {{minAvailable: 3, queue: research, priorityClass: high}}
  tfReplicaSpecs:
    PS:
      replicas: 1
{template("tensorflow", 6)}
    Worker:
      replicas: 4
      restartPolicy: ExitCode
{template("tensorflow", 6)}
"""
MPI = f"""\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: pi}}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
{template("launcher", 6)}
    Worker:
      replicas: 2
{template("worker", 6)}
"""
XGBOOST = f"""\
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {{name: boost}}
spec:
  xgbReplicaSpecs:
    Master:
      replicas: 1
{template("xgboost", 6)}
    Worker:
      replicas: 2
{template("xgboost", 6)}
"""
PADDLE = f"""\
apiVersion: kubeflow.org/v1
kind: PaddleJob
metadata: {{name: paddle}}
spec:
  paddleReplicaSpecs:
    Worker:
      replicas: 2
{template("paddle", 6)}
"""
JAX = f"""\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {{name: jax}}
spec:
  jaxReplicaSpecs:
    Worker:
      replicas: 2
{template("jax", 6)}
"""
VOLCANO = f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: vc}}
spec:
  minAvailable: 3
  queue: research
  priorityClassName: high
  schedulerName: volcano
  plugins: {{env: [], svc: [], tensorflow: ["--port=3333"]}}
  policies:
  - {{event: PodEvicted, action: RestartJob}}
  tasks:
  - name: ps
    replicas: 1
    minAvailable: 1
{template("tensorflow", 4)}
  - name: worker
    replicas: 3
    minAvailable: 2
    policies:
    - {{event: TaskCompleted, action: CompleteJob}}
    - {{exitCode: 3, action: RestartTask}}
{template("tensorflow", 4)}
"""
ELASTIC = f"""\
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {{name: dl}}
spec:
  distributionStrategy: AllreduceStrategy
  suspend: true
  envs: {{MODE: {{name: MODE, value: fast}}}}
  replicaSpecs:
    worker:
      replicas: 4
{template("main", 6, **{'note: "1"': f'{GANG}name: dl, {GANG}min-available: "2"'})}
"""
PLAIN = f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: batch}}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
{template("main", 2, **NEVER)}
"""
JOB_SET = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: set}}
spec:
  failurePolicy: {{maxRestarts: 2}}
  successPolicy: {{targetReplicatedJobs: [driver]}}
  replicatedJobs:
  - name: driver
    template:
      spec:
{template("main", 8)}
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        completions: 2
{template("main", 8)}
"""
DEPLOYMENT = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{team: x}}}}
{template("main", 2)}
"""
ALL = {
    "PyTorchJob": PYTORCH,
    "TFJob": TENSORFLOW,
    "MPIJob v2": MPI,
    "MPIJob v1": MPI.replace("v2beta1", "v1"),
    "XGBoostJob": XGBOOST,
    "PaddleJob": PADDLE,
    "JAXJob": JAX,
    "Volcano Job": VOLCANO,
    "ElasticJob": ELASTIC,
    "Job": PLAIN,
    "JobSet": JOB_SET,
    "Deployment": DEPLOYMENT,
}
