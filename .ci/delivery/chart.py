"""The chart as a package, and in an OCI layout as a registry would keep it; both are the same bytes each time.

Formats: https://helm.sh/docs/topics/registries, and the image layout of the OCI image specification 1.1.
"""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import yaml

from delivery.project import ROOT

CHART = ROOT / "charts" / "hived"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


def package(time: int) -> bytes:
    """The chart as `helm package` would make it, with `time` (seconds) as the time of all files."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=time) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(CHART.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                entry = tarfile.TarInfo(f"hived/{path.relative_to(CHART)}")
                entry.size, entry.mtime, entry.mode = len(content), time, 0o644
                tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def write_package(folder: Path, time: int) -> Path:
    """Write `hived-VERSION.tgz` and the OCI layout `hived-VERSION.oci` into a folder; returns the path of the first."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = about["version"]
    content = package(time)
    file = folder / f"hived-{version}.tgz"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    layout = folder / f"hived-{version}.oci"
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _put(layout, json.dumps(about, sort_keys=True).encode(), CONFIG_TYPE),
        "layers": [_put(layout, content, CONTENT_TYPE)],
        "annotations": {
            "org.opencontainers.image.title": about["name"],
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.description": about["description"],
        },
    }
    entry = _put(layout, json.dumps(manifest, sort_keys=True).encode(), MANIFEST_TYPE)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [entry | {"annotations": {"org.opencontainers.image.ref.name": version}}],
    }
    (layout / "index.json").write_text(json.dumps(index, sort_keys=True))
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    print(f"{file.name}: {len(content) / 1e3:.0f} kB, as an OCI layout in {layout.name}/")
    return file


def _put(layout: Path, blob: bytes, media_type: str) -> dict[str, Any]:
    """Keep a blob; returns its descriptor."""
    digest = hashlib.sha256(blob).hexdigest()
    path = layout / "blobs" / "sha256" / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(blob)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(blob)}
