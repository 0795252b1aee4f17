"""The KubeSchedulerConfiguration that we ship, with the addresses and names of a test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hived_jobs.submission import SCHEDULER, Submission
from tests.places import ROOT

CHECKOUT = ROOT
SHIPPED = Path("config") / "deploy" / "base" / "kube-scheduler-config.yaml"


def scheduler_configuration(
    extender_url: str,
    virtual_clusters: Iterable[str],
    *,
    is_shared: bool = True,
    others: Iterable[str] = (),
    tls: dict[str, Any] | None = None,
    product: Path | None = None,
) -> str:
    """The shipped configuration for an extender at `extender_url`, as YAML.

    Its profile stands once for each virtual cluster, under the name that submitted pods ask for, and once under each
    name of `others`. If it `is_shared` by all of them, it stands once more for pods that name none. No leader is
    elected among one. `tls` is the extender's tlsConfig, for an address with https. `product` is the checkout that
    ships it, if not this one.
    """
    document = yaml.safe_load(((product or CHECKOUT) / SHIPPED).read_text())
    document["leaderElection"] = {"leaderElect": False}
    [profile] = document["profiles"]
    [extender] = document["extenders"]
    names = [Submission(user="").scheduler_for(vc) for vc in sorted(virtual_clusters)]
    names += [*([SCHEDULER] if is_shared else []), *others]
    document["profiles"] = [{**profile, "schedulerName": name} for name in names]
    extender["urlPrefix"] = f"{extender_url}/v1/extender"
    if tls is not None:
        extender |= {"enableHTTPS": True, "tlsConfig": tls}
    return yaml.safe_dump(document, sort_keys=False)
