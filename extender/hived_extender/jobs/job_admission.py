"""The admission of job objects: where jobs wait in queues, those that are ours to queue are born held.

Quota trees are checked there too.

So no pod of theirs is created before their turn, not even for a moment. A job that slips through, as while no webhook
answers, is held back by the queues themselves. Plain pods of a gang are born with our gate; those that slip through are
in no queue.
"""

from collections.abc import Mapping
from typing import Any

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.jobs.admission import GATES, Admission, Admitted, Answered, decoded
from hived_extender.jobs.asks import no_labels
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import gangs, gates, kueue, marks, table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.table import job_of_pod, workload_of
from hived_extender.jobs.misspelt import misplaced
from hived_extender.jobs.needs import is_ours, need_of
from hived_extender.jobs.quotas.backing import Beside, judge
from hived_extender.jobs.wire import Pod

KUEUES = frozenset((kueue.GROUP_NAME, "kueue.x-k8s.io/managed"))
"""Labels of pods that Kueue starts."""


class JobAdmission(Admission):
    """As `Admission` for pods, and besides for job objects of the kinds in the table, and for quota trees.

    `beside_tree` gives warnings about trees that follow from the jobs of now; None while nobody knows these.
    """

    beside_tree: Beside | None = None

    def configure(self, cluster: ClusterSpec, rules: PodRules) -> None:
        """Go by another configuration from now on."""
        super().configure(cluster, rules)
        self._cluster, self._tree_resources = cluster, rules.resources_in(cluster)
        self._has_queues = rules.queueing.is_enabled
        self._interpreter = Interpreter(
            cluster,
            rules,
            NoObjects(),
            serves_every_name=self._serves_every_name,
            labels_of=self._labels_of or no_labels,
        )

    def admit(self, pod: Mapping[str, Any], namespace: str = "", *, is_by_kubelet: bool = False) -> Admitted:
        """As `Admission.admit`; a pod of a gang of plain pods gets our gate besides."""
        admitted = super().admit(pod, namespace, is_by_kubelet=is_by_kubelet)
        if admitted.refusal or not self._has_queues or not self._is_to_wait(decoded(pod, Pod), namespace):
            return admitted
        spec = admitted.pod["spec"]
        gated = {**spec, GATES: [*(spec.get(GATES) or ()), {"name": gates.GATE}]}
        return Admitted({**admitted.pod, "spec": gated}, admitted.warnings)

    def _is_to_wait(self, pod: Pod, namespace: str) -> bool:
        """Is a pod a member of a gang that waits in a queue, and has not our gate yet?"""
        spec = pod.spec
        if spec is None or pod.node or gates.GATE in pod.gates or not self._serves(spec.scheduler_name or ""):
            return False
        place = pod.metadata.namespace or namespace
        may_wait = marks.may_queue(pod.labels, pod.annotations) and not pod.labels.keys() & KUEUES
        is_of_other = job_of_pod(pod.labels, pod.metadata.owners or (), place) or workload_of(pod.annotations, place)
        return may_wait and not is_of_other and gangs.names_gang(pod)

    def admit_job(self, document: Mapping[str, Any], namespace: str = "") -> Answered:
        """The change that holds a job, if it is ours to queue and not held yet, and warnings. Raises nothing."""
        if not self._has_queues or table.find_kind(document.get("apiVersion"), document.get("kind")) is None:
            return Answered()
        try:
            given = _placed(document, namespace)
            job = table.read(given)
            if not is_ours(job, self._interpreter):
                return Answered()
        except UserError as error:
            return Answered(warnings=(f"it waits in no queue: {error.message}",))
        try:
            patch = table.hold_at_creation(given) if job.state is JobState.LET_GO else []
        except UserError as error:
            return Answered(refusal=error.message)
        warning = ""
        try:
            if job.roles_in is None and (need := need_of(job, self._interpreter)) is not None:
                warning = misplaced(job, (pod for pod, _ in need.pods))
        except UserError as error:
            warning = f"it waits until this is put right: {error.message}"
        return Answered(tuple(patch), (warning,) if warning else ())

    def admit_tree(self, document: Mapping[str, Any], old: Mapping[str, Any] | None) -> Answered:
        """Refuse a quota tree that breaks rules, and warn of all that is hardly meant. Raises nothing."""
        if not self._has_queues:
            return Answered()  # somebody else's
        found = judge(document, old, self._cluster, self._tree_resources, self.beside_tree)
        return Answered(warnings=found.warnings, refusal=found.refusal)


def _placed(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The object with the namespace in which it is created, if it does not say that itself."""
    metadata = document.get("metadata")
    if not namespace or not isinstance(metadata, dict) or metadata.get("namespace"):
        return dict(document)
    return {**document, "metadata": {**metadata, "namespace": namespace}}
