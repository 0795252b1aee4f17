"""Hatch's hook that puts the linked kernels into a wheel, and names the platforms that it is for.

HIVED_WHEEL says what is built: `linked` (an error if that cannot be done), `pure` (a wheel for every platform, whose
kernels numba compiles), or nothing: linked where there is a C compiler and all that the sources import. An editable
installation never has a library; `make kernels` builds one in a checkout. HIVED_BUILD_PYTHON names an interpreter that
has numba, by default the one that builds; HIVED_BUILD_ARCHITECTURE and CC build for another architecture.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "_kernels.abi3.so"
DESCRIPTION = "_kernels.json"
TAG = "cp311-abi3-manylinux_2_17_{}"
"""The stable ABI of Python 3.11, and symbols of the C library of 2012 or earlier."""


class LinkKernels(BuildHookInterface[Any]):
    """Builds the library into a folder of its own, so that nothing of it stays in the sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, unless the wheel is editable or shall be pure."""
        wanted = os.environ.get("HIVED_WHEEL", "")
        if version == "editable" or wanted == "pure":
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        try:
            subprocess.run(self._command(folder), env=os.environ | {"PYTHONPATH": self._sources()}, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            if wanted == "linked":
                raise
            self.app.display_warning(f"the kernels are not linked, numba will compile them at the first start: {error}")
            return
        architecture = json.loads((folder / DESCRIPTION).read_text())["architecture"]
        build_data["pure_python"] = False
        build_data["tag"] = TAG.format(architecture)
        build_data["force_include"] |= {str(folder / name): f"hived/{name}" for name in (LIBRARY, DESCRIPTION)}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _command(self, folder: Path) -> list[str]:
        python = os.environ.get("HIVED_BUILD_PYTHON", sys.executable)
        architecture = os.environ.get("HIVED_BUILD_ARCHITECTURE", "")
        other = ["--architecture", architecture] if architecture else []
        return [python, "-m", "hived_extender.build", "--folder", str(folder), *other]

    def _sources(self) -> str:
        return os.pathsep.join(str(Path(self.root, each)) for each in (".", "config", "extender"))
