"""A KubeSchedulerConfiguration for tests: kube-scheduler with the extender, quick to try again."""

from collections.abc import Iterable
from typing import Any

import yaml

from hived_extender.jobs.submission import Submission
from hived_extender.wire import ENABLE_LIMIT

OFF = {
    # The filter of a node that is full of victims would never reach the extender. Cells stand for resources here.
    "filter": {"disabled": [{"name": "NodeResourcesFit"}]},
    # Without that filter nothing that kube-scheduler removes in a dry run makes room, which it takes for an error.
    "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
}


def scheduler_configuration(
    extender_url: str,
    virtual_clusters: Iterable[str],
    *,
    has_preempt_verb: bool,
    tls: dict[str, Any] | None = None,
) -> str:
    """The configuration as YAML, with a profile for each virtual cluster as submitted pods name it.

    With the preempt verb kube-scheduler finds victims by what they use, asks the extender about them and deletes them;
    without it the service has to evict them itself. `tls` is the extender's tlsConfig, for an address with https.
    """
    submission = Submission(user="")
    extender = {
        "urlPrefix": f"{extender_url}/v1/extender",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "httpTimeout": "10s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": ENABLE_LIMIT, "ignoredByScheduler": True}],
    }
    if has_preempt_verb:
        extender["preemptVerb"] = "preempt"
    if tls is not None:
        extender |= {"enableHTTPS": True, "tlsConfig": tls}
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": 1000, "burst": 2000},
            "percentageOfNodesToScore": 100,
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
            "profiles": [
                {
                    "schedulerName": submission.scheduler_for(vc),
                    "plugins": {} if has_preempt_verb else OFF,
                }
                for vc in sorted(virtual_clusters)
            ],
            "extenders": [extender],
        },
        sort_keys=False,
    )
