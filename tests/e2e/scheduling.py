"""The KubeSchedulerConfiguration that we ship, with the addresses and names of a test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hived_extender.jobs.roles import SCHEDULER
from hived_extender.jobs.submission import Submission

SHIPPED = Path(__file__).parents[2] / "config" / "deploy" / "base" / "kube-scheduler-config.yaml"


def scheduler_configuration(
    extender_url: str,
    virtual_clusters: Iterable[str],
    *,
    is_shared: bool = True,
    tls: dict[str, Any] | None = None,
) -> str:
    """The shipped configuration for an extender at `extender_url`, as YAML.

    Its profile stands once for each virtual cluster, under the name that submitted pods ask for, and if it `is_shared`
    by all of them once more for pods that name none. No leader is elected among one. `tls` is the extender's tlsConfig,
    for an address with https.
    """
    document = yaml.safe_load(SHIPPED.read_text())
    document["leaderElection"] = {"leaderElect": False}
    [profile] = document["profiles"]
    [extender] = document["extenders"]
    names = [Submission(user="").scheduler_for(vc) for vc in sorted(virtual_clusters)]
    names += [SCHEDULER] if is_shared else []
    document["profiles"] = [{**profile, "schedulerName": name} for name in names]
    extender["urlPrefix"] = f"{extender_url}/v1/extender"
    if tls is not None:
        extender |= {"enableHTTPS": True, "tlsConfig": tls}
    return yaml.safe_dump(document, sort_keys=False)
