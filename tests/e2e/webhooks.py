"""Webhooks of an installation on a real API server: as `hived manifests` prints them but for the address.

There are no Services here.
"""

from pathlib import Path
from typing import Any

import yaml

from tests.deploy.rules import of_kind
from tests.e2e.certificates import LOOPBACK
from tests.e2e.processes import free_port
from tests.programs import output_of

Json = dict[str, Any]


def webhook(kind: str, path: str, file: Path, folder: Path) -> tuple[Json, tuple[str, ...]]:
    """The configuration of a kind for a configuration file of hived, and the options of `hived serve` that answer it.

    `path` is the one that is asked. Certificates are made in the folder.
    """
    port = free_port()
    output_of("certificates", "--out", str(folder))
    printed = yaml.safe_load_all(output_of("manifests", "--config", str(file), "--webhook", str(folder / "ca.crt")))
    ((_, document),) = of_kind(list(printed), kind)
    for each in document["webhooks"]:
        del each["clientConfig"]["service"]
        each["clientConfig"]["url"] = f"https://{LOOPBACK}:{port}{path}"
    return document, (
        f"--webhook-port={port}",
        f"--webhook-tls-cert-file={folder / 'tls.crt'}",
        f"--webhook-tls-private-key-file={folder / 'tls.key'}",
    )
