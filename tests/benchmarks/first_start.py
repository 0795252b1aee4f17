"""The first start after an installation: `hived serve --embedded` with an empty home, until it answers filter calls."""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.benchmarks.clusters import config_text

LONGEST_S = 900.0
CHECK_S = 0.02


def first_start_s(node_count: int) -> float:
    """Seconds from the start of the process, the embedded cluster's own start among them. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="hived-bench-") as folder:
        config = Path(folder, "hived.yaml")
        config.write_text(config_text(node_count))
        caches = {"HOME": folder, "XDG_CACHE_HOME": folder, "NUMBA_CACHE_DIR": str(Path(folder, "kernels"))}
        command = [sys.executable, "-c", "from hived_cli import main; main()", "serve"]
        command += ["--embedded", str(config), "--listen", "127.0.0.1:0"]
        started = time.perf_counter()
        with subprocess.Popen(
            command, env=os.environ | caches, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                return _ready_at(process) - started
            finally:
                process.terminate()
                process.communicate()


def _ready_at(process: "subprocess.Popen[str]") -> float:
    assert process.stdout is not None
    found = None
    while found is None:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("hived serve ended before it was ready")
        found = re.match(r" +extender +(http\S+)", line)
    deadline = time.perf_counter() + LONGEST_S
    while time.perf_counter() < deadline:
        try:
            with urllib.request.urlopen(f"{found[1]}/readyz", timeout=LONGEST_S):
                return time.perf_counter()
        except urllib.error.HTTPError:
            time.sleep(CHECK_S)
    raise RuntimeError(f"not ready after {LONGEST_S} s")
