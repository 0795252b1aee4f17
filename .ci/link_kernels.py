"""Hatch's hook that puts the linked kernels into a wheel, and names the platforms that it is for.

HIVED_WHEEL says what is built: `linked` (an error if that cannot be done), `pure` (a wheel for every platform, whose
kernels numba compiles), or nothing: linked where there is a C compiler, else pure. An editable installation never has a
library; `make kernels` builds one in a checkout. HIVED_BUILD_PYTHON names an interpreter that has numba, by default the
one that builds, into which an isolated build installs it; HIVED_BUILD_ARCHITECTURE and CC build for another machine.
"""

import json
import os
import re
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
IMPORTED = ("click", "llvmlite", "msgspec", "numba", "numpy")
"""The packages that translating the kernels imports, in the versions that hived itself needs."""


class LinkKernels(BuildHookInterface[Any]):
    """Builds the library into a folder of its own, so that nothing of it stays in the sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The packages of an isolated build besides hatchling: none for a pure wheel, or if another Python has them.

        hatchling has them installed for an editable installation, too: it does not say which of both it asks for.
        """
        if os.environ.get("HIVED_WHEEL", "") == "pure" or "HIVED_BUILD_PYTHON" in os.environ:
            return []
        return [each for each in self.metadata.core.dependencies if re.split(r"[^\w.-]", each)[0] in IMPORTED]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, unless the wheel is editable or shall be pure."""
        wanted = os.environ.get("HIVED_WHEEL", "")
        if version == "editable" or wanted == "pure":
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        try:
            subprocess.run(self._command(folder), env=self._environ(), check=True)
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
        return [python, "-P", "-m", "hived_extender.build", "--folder", str(folder), *other]

    def _environ(self) -> dict[str, str]:
        """Our sources, then what pip names there in an isolated build: its packages, for its own Python."""
        sources = [str(Path(self.root, each)) for each in (".", "config", "extender")]
        if "HIVED_BUILD_PYTHON" not in os.environ:
            sources += filter(None, [os.environ.get("PYTHONPATH")])
        return os.environ | {"PYTHONPATH": os.pathsep.join(sources), "NUMBA_DISABLE_JIT": "0"}
