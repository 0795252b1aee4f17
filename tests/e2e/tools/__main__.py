"""`python -m tests.e2e.tools [--check]`: make the programs of every version, or only look whether they are there.

The exit code is 0 if they are there now, 3 if something that they are made from cannot be had, 1 if building failed.
"""

import subprocess
import sys
import time

from tests.e2e.tools import VERSIONS, ToolsMissing, build, faketime, find

MISSING = 3


def main(arguments: list[str]) -> int:
    """Build or, with `--check`, only look; returns the exit code."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"tools: {time.monotonic() - began:4.0f} s  {text}", flush=True)

    for version in VERSIONS:
        try:
            tools = find(version) if "--check" in arguments else build(version, say)
        except ToolsMissing as missing:
            print(f"tools: {version} cannot be had: {missing}", file=sys.stderr)
            return MISSING
        except subprocess.CalledProcessError as error:
            print(f"tools: {version}: {' '.join(map(str, error.cmd))} failed:\n{error.stderr}", file=sys.stderr)
            return 1
        say(f"Kubernetes {tools.version} is ready in {tools.kubernetes}")
    try:
        faketime(say)
    except ToolsMissing as missing:
        print(f"tools: libfaketime cannot be had: {missing}", file=sys.stderr)
        return MISSING
    return 0


sys.exit(main(sys.argv[1:]))
