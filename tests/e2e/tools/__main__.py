"""Make the programs that end-to-end tests need, or look for them.

The exit code is 0 if all are there now, 3 if something that they are made from cannot be had, 1 if building failed.
"""

import argparse
import subprocess
import sys
import time

from tests.e2e import tools
from tests.e2e.tools import ToolsMissing, sources

MISSING = 3


def main(arguments: list[str]) -> int:
    """Build or, with `--check`, only look; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.tools", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build nothing, only look")
    parser.add_argument("--controllers", action="store_true", help="controllers of jobs too")
    parser.add_argument("--helm", action="store_true", help="Helm alone")
    parser.add_argument("--published", action="store_true", help="fetch sources of other projects, build nothing")
    given = parser.parse_args(arguments)
    began, is_check, has_controllers = time.monotonic(), given.check, given.controllers

    def say(text: str) -> None:
        print(f"tools: {time.monotonic() - began:4.0f} s  {text}", flush=True)

    try:
        if given.published:
            sources.fetch(say)
            say("the sources of other projects are here")
            return 0
        if given.helm:
            say(f"Helm is ready: {tools.find_helm() if is_check else tools.build_helm(say)}")
            return 0
        for version in tools.wanted_versions():
            found = tools.find(version) if is_check else tools.build(version, say)
            say(f"Kubernetes {found.version} is ready in {found.kubernetes}")
        if has_controllers:
            if not is_check:
                tools.build_controllers(say)
            programs = [tools.find_controller(name) for name in (*tools.CONTROLLERS, *tools.APART)]
            say(f"{', '.join(one.name for one in programs)} are ready in {tools.cache_folder()}")
        tools.faketime(say)
    except ToolsMissing as missing:
        print(f"tools: {missing}", file=sys.stderr)
        return MISSING
    except subprocess.CalledProcessError as error:
        print(f"tools: {' '.join(map(str, error.cmd))} failed:\n{error.stderr}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
