"""Runs the commands of a page in order, in a folder of their own and against an embedded cluster.

A command that cannot run there is not run, for a reason that stands in `ELSEWHERE` or on the page. A command that does
run has to succeed, and to print what the page shows.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from docs.site.pages import Page
from tests.docs.commands import Command, commands_of, without_gaps
from tests.places import ROOT

FILES = Path(__file__).parent / "scratch"
"""Files that commands speak of, or `BEFORE` runs: each page finds them in its folder, unless it shows one of
the same name itself."""

HAS_KUBECTL = shutil.which("kubectl") is not None

ELSEWHERE = {
    r"^hived serve(?! --embedded)": "serves until it is stopped, in a real cluster; tests/extender starts it",
    r"^hived serve .*--webhook": "one embedded cluster a page; tests/lab starts it",
    r"^hived demo(?! --list)": "all experiments are run by tests/lab/demo",
    r"^make |^pip |^\.venv/bin/|^\. |^python -m ": "sets up, builds or tests a checkout",
    r"^export ": "the variables are set already",
    r"--watch|replay (?:monday|out|scenarios)": "runs until it is stopped, or reads a recording of the reader's",
    r"statefulset|clusterrole|deployment|service(?:account)?/|hived-system|serviceaccount": "needs a real cluster",
    r"HIVED:|10\.0\.0\.7|https://localhost": "calls another machine",
    r"^nvidia-smi": "needs GPUs",
    r"^kubectl edit ": "opens an editor",
    r"^hived simulate (?:examples/)?philly": "takes minutes without kernels; tests/simulator runs a part of it",
    r"^helm |^docker ": "needs a real cluster, or a registry",
    r"--config-map": "needs a real cluster",
    r"^hived config (?:generate|sync).*--topology": "needs what nvidia-smi prints; tests/config/generating has that",
    r"(?:resume|delete) train -n|groups team-a": "speaks of another namespace, to show the option",
    r"^hived (?:why|delete (?:podgroup|me~|train other|--me))": "names jobs of the reader's; tests/cli does it",
    r"^kubectl apply(?!.* -k)|pod-bind-proof": "needs a real cluster",
    r"^hived config (?:generate --levels|sync -f|sync --max)": "needs nodes that are labelled so",
}
"""Why a command is not run here, by what it looks like."""

IN_PART = re.compile(r"\s*\|\s*\n?\s*kubectl (?:apply|-n hived-system apply).*$", re.DOTALL)
"""The part of a command that needs a real cluster: the embedded one has no server-side apply. The rest is run."""

ASKS = re.compile(r"^hived (?:delete|config (?:push|rollback|set-vc|move|remove-vc|sync))(?!.*(?:--yes|-y|--dry-run))")
"""Commands that ask before they change something. They are told yes."""

EXIT_CODES = {
    r"^hived config (?:plan|sync)": {0, 2}, r"^hived config diff": {0, 1}, r"^hived submit.* --dry-run": {0, 3},
    r"^hived why.* --if": {0, 3}, r"--dry-run": {0, 2},
}  # fmt: skip
"""Exit codes other than 0 that say something else than failure."""

ASKS_A_CLUSTER = re.compile(
    r"kubectl (?!apply)|curl |hived (?:submit(?!.*-o yaml)|resume|get|why|top|delete|hold|release|move|defrag|"
    r"config (?:plan|push|pull|diff|history|rollback|get-id|set-vc(?!.* -f)|move(?!.* -f)|"
    r"remove-vc(?!.* -f)|sync|generate)|service start)"
)
"""Commands for which a cluster is started, if there is none yet."""

_AN_HOUR_LATER = (
    "import json, sys; inputs = json.load(sys.stdin); "
    '[group.update(startedAt=inputs["at"] - 3600) for group in inputs["groups"]]; print(json.dumps(inputs))'
)
"""Makes inputs of a plan in which all groups have run for an hour: a page shows the work that a move would lose."""

BEFORE = {
    r"^hived config generate .*-o (\S+)": r"rm -f \1",
    r"^hived certificates --as-secrets --out (\S+)": r"rm -rf \1",
    r"^kubectl get configmap hived-job-train": "kubectl get configmap hived-job-train || hived submit web.yaml",
    r"^hived (?:delete|resume) (?:default/)?train": "kubectl get job train || hived submit job.yaml",
    r"^hived submit .*--after": "kubectl get job prepare || hived submit prepare.yaml",
    r"^hived defrag": "bash fragmented.sh",
    r"^hived (?:hold|release|move|get queue)": "bash queued.sh",
    r"^hived defrag .*--state (inputs\.json)": r"hived defrag inputs > \1",
    r"^hived defrag .*--state (an-hour-later\.json)": rf"hived defrag inputs | python -c '{_AN_HOUR_LATER}' > \1",
    r"^hived defrag apply (\S+)": r"test -e \1 || hived defrag plan --vc research --want 1xNODE --json > \1",
}
"""Pages show examples beside each other, as alternatives. What has to be done so that the later ones run, too."""

_ANOTHER_VERSION = "sed 's/is spare/is unused/' hivedscheduler.yaml > other.yaml; hived config push -f other.yaml --yes"
_OPENPAI = """mkdir cluster-configuration
{ echo 'hivedscheduler:'; echo '  config: |'; sed 's/^/    /' hivedscheduler.yaml; } \\
  > cluster-configuration/services-configuration.yaml
"""
PREPARED = {
    "docs/commands.md": f"{_OPENPAI} mkdir -p .zfunc .config/fish/completions; {_ANOTHER_VERSION} --cluster-id pai",
    "docs/http.md": "hived submit job.yaml",
    "docs/isolation.md": "kubectl create namespace gpu-operator",
    "docs/migration.md": "kubectl create configmap hivedscheduler-config --from-file hivedscheduler.yaml",
    "docs/paictl.md": _OPENPAI,
    "docs/pods.md": "kubectl create -f train-0.yaml",
    "docs/reconfiguration.md": _ANOTHER_VERSION,
    "docs/replay.md": "hived submit job.yaml",
}
"""What there has to be before a page begins."""

PLACEHOLDERS = {
    r"REGISTRY": "registry.example", r"vX\.Y\.Z": "v1.36.3", r"\bDIR\b": "records",
    r"hived-job-NAME": "hived-job-train", r"mycluster\.yaml": "hivedscheduler.yaml",
    r"(?<!\S)/(?:cluster-configuration|etc/openpai)": "cluster-configuration",
    r"--versions 6 7": "--versions 1 2", r"(?<!/)localhost:9096": "$HIVED_SERVER", r"20261120T091500000Z": "*Z",
    r"(?<=--want 1xNODE)$": " --state an-hour-later.json",
}  # fmt: skip
"""What stands for names of the reader's, and the reader's own here."""


@dataclass
class Outcome:
    """How many commands of a page ran, ran in part, or did not, with the reasons; and what went wrong."""

    ran: int = 0
    in_part: int = 0
    elsewhere: list[tuple[Command, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Session:
    """The folder and the embedded cluster of one page; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster: subprocess.Popen[str] | None = None
        self._submitted: set[str] = set()
        self._environment = {
            **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "NUMBA_DISABLE_JIT": "1", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        for name in ("CONFIG", "KUBECONFIG"):
            self._environment.pop(name, None)
        # nobody listens there: commands must not reach a service of somebody else, on the port that is usual
        self._environment["HIVED_SERVER"] = "http://127.0.0.1:9"

    def __enter__(self) -> Self:
        shutil.copytree(FILES, self._folder, dirs_exist_ok=True)
        for name in ("examples", "config"):
            (self._folder / name).symlink_to(ROOT / name)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._cluster is not None:
            self._cluster.send_signal(signal.SIGTERM)
            self._cluster.wait(30)

    def run_page(self, page: Page) -> Outcome:
        """Write the files that a page shows, and run its commands."""
        outcome = Outcome()
        for block in page.blocks:
            if block.title:
                (self._folder / block.title).write_text(block.text)
        if first := PREPARED.get(page.path):
            self._prepare(first)
        for command in commands_of(page):
            self._run(command, outcome)
        return outcome

    def _run(self, command: Command, outcome: Outcome) -> None:
        text = _placed(command.text)
        if reason := command.mark or next((why for look, why in ELSEWHERE.items() if re.search(look, text)), ""):
            outcome.elsewhere.append((command, reason))
        elif re.search(r"kubectl|^hived defrag", text) and not HAS_KUBECTL:
            outcome.elsewhere.append((command, "there is no kubectl here"))
        elif text.startswith("hived serve --embedded"):
            self.serve(text.split("#")[0].split()[3])
            outcome.ran += 1
        else:
            if ASKS_A_CLUSTER.search(text):
                self.serve("hivedscheduler.yaml")
            self._forget_job(text)
            for look, first in BEFORE.items():
                if found := re.search(look, text):
                    self._prepare(found.expand(first))
            part = re.sub(r"^kubectl apply.* -k (\S+)", r"kubectl kustomize \1 > all.yaml", IN_PART.sub("", text))
            outcome.ran += part == text
            outcome.in_part += part != text
            self._run_in_shell(command, f"{part.split(' #')[0]} --yes" if ASKS.match(part) else part, outcome)

    def _prepare(self, text: str) -> None:
        """Run what a page takes for granted. Raises RuntimeError if that fails."""
        if ASKS_A_CLUSTER.search(text):
            self.serve("hivedscheduler.yaml")
        done = self._shell(text)
        if done.returncode:
            raise RuntimeError(f"{text}\n{done.stdout}{done.stderr}")

    def _run_in_shell(self, command: Command, text: str, outcome: Outcome) -> None:
        done = self._shell(text)
        codes = next((codes for look, codes in EXIT_CODES.items() if re.search(look, text)), {0})
        deadline = time.monotonic() + 20
        while command.shown is not None and not is_shown(command.shown, done.stdout) and time.monotonic() < deadline:
            if "create" in done.stdout or done.returncode not in codes:
                break
            time.sleep(0.5)  # what was asked for a moment ago may still be on its way
            done = self._shell(text)
        if done.returncode not in codes:
            outcome.wrong.append(f"{command}: {text}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
        elif command.shown is not None and not is_shown(command.shown, done.stdout):
            outcome.wrong.append(f"{command}: {text}\nshown:\n{command.shown}\nprinted:\n{done.stdout}{done.stderr}")

    def _forget_job(self, text: str) -> None:
        """Remove the job of a file that is submitted once more, as the same name may not be used twice."""
        if text.startswith("hived submit ") and "--dry-run" not in text:
            file = text.split()[2]
            if file in self._submitted:
                self._shell(f"kubectl delete --ignore-not-found -f {file}")
            self._submitted.add(file)

    def _shell(self, text: str) -> "subprocess.CompletedProcess[str]":
        shell = ["bash", "-c", f"set -o pipefail\n{text}"]
        return subprocess.run(
            shell, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def serve(self, config: str) -> None:
        """Start the embedded cluster of a page, and set the variables that it prints. Raises RuntimeError."""
        if self._cluster is not None:
            return
        log = self._folder / "serve.log"
        command = ["hived", "serve", "--embedded", config, "--listen", "127.0.0.1:0", "--record", "records"]
        with log.open("w") as output:
            self._cluster = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=output, stderr=output, text=True
            )
        deadline = time.monotonic() + 120
        while "\nReady" not in log.read_text():
            if self._cluster.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        variables = re.search(r"export (.*)", log.read_text())
        assert variables is not None
        self._environment |= dict(pair.split("=", 1) for pair in variables[1].split())


def _placed(text: str) -> str:
    text = without_gaps(text)
    for placeholder, value in PLACEHOLDERS.items():
        text = re.sub(placeholder, value, text)
    return text.strip()


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed. `...` alone on a line stands for lines, at the end of one for the rest."""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            begin = line.rstrip()
            pattern += re.escape(begin.removesuffix("...")) + (r".*\n" if begin.endswith("...") else r" *\n")
    return re.search(pattern, printed + "\n") is not None


def summary(outcomes: Mapping[str, Outcome]) -> str:
    """A line a page, and a total: how many commands ran, ran in part, and did not."""
    rows = [(name, each.ran, each.in_part, len(each.elsewhere)) for name, each in outcomes.items()]
    rows.append(("all", *(sum(row[column] for row in rows) for column in (1, 2, 3))))
    lines = [f"{name:32} {ran:4} ran {part:4} in part {other:4} not here" for name, ran, part, other in rows]
    return "\n".join(lines)
