"""The controllers that can be had as Go modules, and how each is told where to listen."""

from pathlib import Path
from typing import Any

from tests.e2e.certificates import LOOPBACK
from tests.e2e.controllers.installing import Controller, Ports

Json = dict[str, Any]


def _jobset(ports: Ports, certificates: Path) -> Json:
    return _managed("config.jobset.x-k8s.io/v1alpha1", ports, certificates)


def _lws(ports: Ports, certificates: Path) -> Json:
    return _managed("config.lws.x-k8s.io/v1alpha1", ports, certificates)


def _managed(version: str, ports: Ports, certificates: Path) -> Json:
    return {
        "apiVersion": version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": LOOPBACK, "port": ports.webhook, "certDir": str(certificates)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports.health}"},
    }


def _trainer(ports: Ports, _certificates: Path) -> Json:
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"host": LOOPBACK, "port": ports.webhook},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports.health}"},
    }


def _kueue(ports: Ports, certificates: Path) -> Json:
    return _managed("config.kueue.x-k8s.io/v1beta2", ports, certificates) | {
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": "kueue-webhook-server-cert",
        },
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


JOBSET = Controller(
    "jobset",
    "sigs.k8s.io/jobset",
    ("config/default",),
    "jobset-system",
    "jobset-controller-manager",
    configuration=_jobset,
)
LEADER_WORKER_SET = Controller(
    "lws",
    "sigs.k8s.io/lws",
    ("config/default",),
    "lws-system",
    "lws-controller-manager",
    arguments=lambda ports: ["--leader-elect=false"],
    configuration=_lws,
    # Its chart grants these where gangs are configured, the manifests that kustomize reads do not.
    rights=(
        {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["podgroups"],
            "verbs": ["create", "get", "list", "watch"],
        },
    ),
)
TRAINER = Controller(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    ("manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"),
    "kubeflow-system",
    "kubeflow-trainer-controller-manager",
    configuration=_trainer,
)
TRAINING_OPERATOR = Controller(
    "training-operator",
    "github.com/kubeflow/training-operator",
    ("manifests/base",),
    "kubeflow",
    "training-operator",
    arguments=lambda ports: [
        "--metrics-bind-address=0",
        f"--webhook-server-port={ports.webhook}",
        f"--health-probe-bind-address={LOOPBACK}:{ports.health}",
    ],
    service="training-operator",
    secret="training-operator-webhook-cert",
    signer="training-operator-ca",
)
KUBERAY = Controller(
    "kuberay",
    "github.com/ray-project/kuberay/ray-operator",
    ("config/default",),
    "ray-system",
    "kuberay-operator",
    arguments=lambda ports: [
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address={LOOPBACK}:{ports.health}",
    ],
)
MPI_OPERATOR = Controller(
    "mpi-operator",
    "github.com/kubeflow/mpi-operator",
    ("manifests/base",),
    "mpi-operator",
    "mpi-operator",
    kubeconfig="--kubeConfig",
    health="8080/healthz",
)
KUEUE = Controller(
    "kueue",
    "sigs.k8s.io/kueue",
    ("config/default",),
    "kueue-system",
    "kueue-controller-manager",
    arguments=lambda ports: ["--zap-log-level=2"],
    configuration=_kueue,
    service="kueue-webhook-service",
    secret="kueue-webhook-server-cert",
    signer="kueue-ca",
)
