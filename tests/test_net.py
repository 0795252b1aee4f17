"""Nothing that a user can touch changes unseen: the list in net.txt is what `net.py` finds in the code."""

import difflib
import os
import subprocess
import sys

from tests.places import ROOT

LIST = ROOT / "tests" / "net.txt"
REMEDY = """\
What users can touch has changed ("-" is gone, "+" is new). If all of it is meant:

    python -m tests.net --write

then look at each line of the change of tests/net.txt, and tell users in CHANGELOG.md.
"""


def test_what_users_can_touch_is_listed() -> None:
    # in a process of its own, where other tests have started nothing; its kernels need not be compiled
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.net"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    changes = difflib.unified_diff(LIST.read_text().splitlines(), ended.stdout.splitlines(), n=0, lineterm="")
    changed = [line for line in changes if not line.startswith(("---", "+++", "@@"))]
    assert not changed, "\n".join([REMEDY, *changed])
