"""Every installation that there is: the overlays and components of config/deploy, and what `hived manifests` prints."""

import tempfile
from pathlib import Path

import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_deploy.certificates import Authority
from hived_deploy.installation import OVERLAYS
from hived_deploy.kustomize import Document, build
from tests.places import ROOT

DEPLOY = ROOT / "config" / "deploy"
SAMPLES = ROOT / "config" / "samples"

_FOLDER = tempfile.TemporaryDirectory(prefix="hived-")
CA = Path(_FOLDER.name) / "ca.crt"
"""The certificate of a CA, for as long as these tests run."""

CA.write_bytes(Authority.create().pair.certificate)

COMMANDS = {
    "manifests": [],
    "manifests single": ["--overlay", "single", "--namespace", "gpu-scheduling", "--replicas", "1"],
    "manifests tls": ["--overlay", "tls", "--service-monitor", "--image", "registry.example/hived:1.2"],
    "manifests one scheduler": ["--one-scheduler", "--service-monitor", "--namespace", "gpu-scheduling"],
    "manifests tls one scheduler": ["--overlay", "tls", "--one-scheduler"],
    "manifests webhook": ["--webhook", str(CA)],
    "manifests tls webhook": ["--overlay", "tls", "--webhook", str(CA), "--one-scheduler", "--namespace", "gpu"],
    "manifests of OpenPAI": ["--config", str(SAMPLES / "services-configuration.yaml")],
}
FOLDERS = {"config/deploy": DEPLOY} | {f"overlay {name}": DEPLOY / "overlays" / name for name in OVERLAYS}
NAMES = [*FOLDERS, *COMMANDS]


def manifests(*options: str, config: str = "racks.yaml") -> list[Document]:
    """The output of `hived manifests` with these options for a sample cluster."""
    result = CliRunner().invoke(main, ["manifests", "--config", str(SAMPLES / config), *options])
    assert result.exit_code == 0, result.output
    return list(yaml.load_all(result.stdout, yaml.CSafeLoader))


def installation(name: str) -> list[Document]:
    """The objects of one of NAMES."""
    return build(FOLDERS[name]) if name in FOLDERS else manifests(*COMMANDS[name])
