"""Words that people type out of habit, from Slurm, kubectl and others, and the command that does it here."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

FOR_SLURM = "docs/migration-slurm.md"

OTHER_WORDS: Mapping[str, Mapping[str, str]] = {
    "hived": {
        "sbatch qsub bsub vsub create apply run launch new add": "hived submit FILE",
        "squeue qstat bjobs vjobs jobs job list ls ps pods": "hived get jobs",
        "sacct history ended finished": "hived get jobs --ended",
        "scancel qdel bkill vcancel cancel kill stop abort terminate rm remove del": "hived delete JOB",
        "sinfo pbsnodes bhosts nodes node": "hived get nodes",
        "queue queues sprio sshare": "hived get queue",
        "vc vcs quota quotas partitions partition": "hived get vc",
        "cluster cells gpus": "hived get cluster",
        "groups group": "hived get groups",
        "free": "hived get free",
        "usage use sreport accounting sacctmgr report": "hived get usage",
        "describe status-job show inspect reason pending eta": "hived why JOB",
        "suspend pause": "hived hold JOB",
        "unsuspend continue unhold start": "hived release JOB",
        "requeue restart rerun": "hived delete JOB, then hived submit FILE",
        "salloc srun": f"kubectl exec -it POD -- sh, in a Pod that sleeps: {FOR_SLURM}#an-interactive-job",
        "scontrol supdate": "hived why JOB for show job, hived get nodes NODE for show node, hived hold JOB, "
        "hived release JOB or hived move JOB",
        "priority reorder": "hived move JOB",
        "watch wait": "hived get jobs --watch",
        "health info doctor leader": "hived status",
        "check lint": "hived config validate FILE",
        "init setup": "hived config generate",
        "install deploy": "hived manifests FILE",
        "help man": "hived --help",
        "server up": "hived serve",
        "lab": "hived demo",
        "log logs tail": "kubectl logs POD",
        "exec attach shell ssh sattach": "kubectl exec -it POD -- sh",
        "events event": "kubectl get events",
        "edit": "kubectl edit KIND JOB",
        "scale": "kubectl scale KIND JOB --replicas COUNT",
        "cordon drain uncordon": "kubectl {word} NODE",
        "label annotate patch": "kubectl {word} KIND JOB",
        "pull push plan diff rollback validate explain generate suggest sync schema": "hived config {word}",
    },
    "hived get": {
        "pods pod po": "kubectl get pods, or hived get jobs --pods",
        "events event ev": "kubectl get events",
        "services service svc configmaps configmap cm secrets": "kubectl get {word}",
        "namespaces namespace ns deployments deployment": "kubectl get {word}",
        "config configuration": "hived config pull",
        "quota quotas partitions partition virtualclusters": "hived get vc",
        "cells gpus gpu": "hived get cluster",
        "history ended": "hived get jobs --ended",
        "use accounting report sreport": "hived get usage",
        "sshare": "hived get queue",
        "status leader": "hived status",
    },
    "hived config": {
        "apply set update replace edit": "hived config push FILE",
        "show get view cat export": "hived config pull",
        "check lint verify test": "hived config validate FILE",
        "undo revert restore": "hived config rollback",
        "log versions list": "hived config history",
        "draw tree": "hived config explain",
        "init create new": "hived config generate",
        "delete-vc delete remove": "hived config remove-vc NAME",
        "id": "hived config get-id",
    },
}
"""By group of commands: words, and the command for all of them."""


def meant(program: str, path: str, word: str, known: Iterable[str]) -> str:
    """The command that a word may mean in the group that is called by `path`, "" if none is near.

    program : how hived was called, with which `path` begins
    known : the commands that the group has
    """
    group = "hived" + path.removeprefix(program)
    said = dict(_commands(group))
    names = {**{name: f"{group} {name}" for name in known}, **said}
    near = [word] if word in said else get_close_matches(word, known) or get_close_matches(word, said, 1)
    found = " or ".join(dict.fromkeys(names[each] for each in near))
    return re.sub(r"\bhived\b", program, found) if program == "kubectl hived" else found


def _commands(group: str) -> Iterator[tuple[str, str]]:
    for words, command in OTHER_WORDS.get(group, {}).items():
        for word in words.split():
            yield word, command.format(word=word)
