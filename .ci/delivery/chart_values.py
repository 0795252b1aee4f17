"""The values of the Helm chart: what each is called, means and allows, and where in the objects it stands."""

from dataclasses import dataclass
from typing import Any

from hived_extender.deploy.installation import SCHEDULER

FROM_OBJECTS = object()
"""As a default: the value that config/deploy has at the value's place."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    Attributes
    ----------
    name : with dots between its parts
    type : of JSON schema: string, boolean, integer, array, object
    description : for values.yaml, the schema and the README
    default : FROM_OBJECTS takes it from the first of `places`
    places : (kind, name, path) of objects; in a path `*` is the last element, as patches put new ones first
    choices : all that it may be, if they are few
    minimum : of an integer
    items : type of the elements of an array
    """

    name: str
    type: str
    description: str
    default: Any = FROM_OBJECTS
    places: tuple[tuple[str, str, str], ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    items: str = ""

    @property
    def expression(self) -> str:
        """The value in a template."""
        return f"$.Values.{self.name}"


POD = "spec.template.spec"


def _pod_values(prefix: str, deployment: str, pods: str) -> list[Value]:
    """The values that both Deployments have."""

    def value(name: str, kind: str, description: str, path: str, **more: Any) -> Value:
        return Value(f"{prefix}{name}", kind, description, places=(("Deployment", deployment, path),), **more)

    return [
        value("replicas", "integer", f"how many {pods}", "spec.replicas", minimum=1),
        value("resources", "object", f"requests and limits of {pods}", f"{POD}.containers.*.resources"),
        value("nodeSelector", "object", f"labels of nodes for {pods}", f"{POD}.nodeSelector", default={}),
        value(
            "tolerations",
            "array",
            f"taints that {pods} tolerate",
            f"{POD}.tolerations",
            items="object",
        ),
        value(
            "affinity", "object", f"affinity of {pods}, instead of spreading them over nodes", f"{POD}.affinity",
            default={},
        ),
        value("priorityClassName", "string", f"PriorityClass of {pods}", f"{POD}.priorityClassName"),
        value("podSecurityContext", "object", f"securityContext of {pods}", f"{POD}.securityContext"),
        value(
            "securityContext", "object", f"securityContext of the container of {pods}",
            f"{POD}.containers.*.securityContext",
        ),
    ]  # fmt: skip


VALUES = (
    Value("createNamespace", "boolean", "a Namespace among the objects, for helm template alone", False),
    Value("commonLabels", "object", "labels of every object and pod", {}),
    Value(
        "configuration", "string",
        "text of hivedscheduler.yaml: --set-file configuration=FILE. An upgrade with the text of the last one leaves "
        "in force what was pushed meanwhile",
    ),
    Value("existingConfigMap", "string", "ConfigMap with the key hivedscheduler.yaml, instead of that text", ""),
    Value(
        "virtualClusters", "array",
        "names of the virtual clusters, with existingConfigMap; else they are those of the configuration", [],
        items="string",
    ),
    Value("image.repository", "string", "hived's image"),
    Value("image.tag", "string", "its tag; that of the chart's appVersion if empty", ""),
    Value("image.digest", "string", "its digest, sha256:..., instead of the tag", ""),
    Value("imagePullSecrets", "array", "Secrets to pull all images with", [], items="object"),
    Value("extraArgs", "array", "more options of `hived serve`, such as --sync-nodes=60", [], items="string"),
    Value("extraEnv", "array", "more environment variables of hived", [], items="object"),
    *_pod_values("", "hived", "pods of hived"),
    Value("kubeScheduler.image.repository", "string", "kube-scheduler's image"),
    Value("kubeScheduler.image.tag", "string", "its tag; the version of the cluster if empty", ""),
    Value("kubeScheduler.image.digest", "string", "its digest, sha256:..., instead of the tag", ""),
    Value(
        "kubeScheduler.names", "array",
        "what pods have as schedulerName; {vc} stands for each virtual cluster in lower case, as in hived-{vc}",
        items="string",
    ),
    Value(
        "kubeScheduler.perVirtualCluster", "boolean",
        "a kube-scheduler, and so a queue, for each virtual cluster; takes a name with {vc}", False,
    ),
    *_pod_values("kubeScheduler.", SCHEDULER, "pods of kube-scheduler"),
    Value("tls.enabled", "boolean", "TLS both ways with kube-scheduler, and tokens for everybody else", False),
    Value("tls.secretName", "string", "Secret with tls.crt, tls.key and ca.crt of hived, for the webhook as well"),
    Value("tls.clientSecretName", "string", "Secret with tls.crt, tls.key and ca.crt of kube-scheduler"),
    Value("webhook.enabled", "boolean", "the admission webhook that isolates devices", False),
    Value("webhook.caBundle", "string", "PEM text of the CA that has signed the certificate of tls.secretName", ""),
    Value(
        "webhook.failurePolicy", "string", "whether pods for hived can be created while no webhook answers",
        places=(("MutatingWebhookConfiguration", "hived", "webhooks.*.failurePolicy"),), choices=("Fail", "Ignore"),
    ),
    Value(
        "webhook.refusedResources", "array", "device resources that pods of other schedulers are refused",
        ["nvidia.com/gpu"],
        items="string",
    ),
    Value("webhook.holdsJobs", "boolean", "job objects are born held, where the configuration has queues", False),
    Value("queues.enabled", "boolean", "the rights that queues need, where the configuration has queues", False),
    Value(
        "queues.createNamespace", "boolean",
        "the Namespace kube-queue, where Queue objects are, unless Kube Queue has made it", False,
    ),
    Value("kueue.enabled", "boolean", "the rights to answer Kueue's admission checks", False),
    Value(
        "rbac.namespaces", "array", "the namespaces in which hived may change pods and jobs; none for all of them", [],
        items="string",
    ),
    Value("serviceMonitor.enabled", "boolean", "a ServiceMonitor for the Prometheus operator", False),
    Value("serviceMonitor.labels", "object", "labels by which the operator finds it", {}),
    Value(
        "serviceMonitor.interval", "string", "how often metrics are read",
        places=(("ServiceMonitor", "hived", "spec.endpoints.*.interval"),),
    ),
    Value("serviceMonitor.namespace", "string", "namespace of Prometheus, which alone may read metrics"),
)  # fmt: skip
"""All values, in the order of values.yaml."""
