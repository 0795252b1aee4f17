"""JobSets with exclusive placement: each of their Jobs has a domain of nodes for itself, such as a rack.

Their webhook lets the pods of a Job be created only when the first of them, its leader, has a node. So a gang of such
pods never exists as a whole before some of it runs. This is no dialect: the gang comes from other keys.
"""

from hived_extender.jobs.dialects.description import JobPart
from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, EITHER, ignores, reads
from hived_extender.jobs.dialects.words import Words, count, level, name
from hived_extender.jobs.wire import Pod

TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""With this annotation nothing waits for leaders: somebody has labelled the nodes of each Job beforehand."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
LEADER = "0"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
NAME = "JobSet"
VOCABULARY = (
    *reads(ANNOTATIONS, TOPOLOGY, BY_NODE_SELECTOR, COMPLETION_INDEX, REPLICATED_JOB, REPLICAS, JOB_INDEX),
    *ignores(
        EITHER,
        "names that its controller gives",
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/jobset-uid",
        "jobset.sigs.k8s.io/global-replicas",
        "jobset.sigs.k8s.io/job-global-index",
        "jobset.sigs.k8s.io/job-key",
        "jobset.sigs.k8s.io/job-group-index",
        "jobset.sigs.k8s.io/group-name",
        "jobset.sigs.k8s.io/group-replicas",
        "jobset.sigs.k8s.io/coordinator",
        "alpha.jobset.sigs.k8s.io/namespaced-job",
    ),
)


def part_of(pod: Pod) -> JobPart | None:
    """Which part the pod has in such a JobSet, None if in none. UserError if its annotations are not the JobSet's."""
    if TOPOLOGY not in pod.annotations or BY_NODE_SELECTOR in pod.annotations:
        return None
    words = Words("annotation ", pod.annotations)
    topology, replicated_job = words.read(TOPOLOGY, level), words.read(REPLICATED_JOB, name)
    replicas, job_index = words.read(REPLICAS, count), words.read(JOB_INDEX, name)
    if topology is None or replicated_job is None or replicas is None or job_index is None:
        return None  # somebody else's pod: the webhook lets it pass too
    is_leader = pod.annotations.get(COMPLETION_INDEX) == LEADER
    return JobPart(topology, replicated_job, job_index, replicas, is_leader)
