"""Experiments: `experiment.yaml` as typed values, and where experiments are found.

A misspelt key is a mistake, not a check that is silently left out.
"""

import re
from pathlib import Path

import msgspec

from hived.values.errors import UserError
from hived_extender.api.pictures import LETTERS

FILE = "experiment.yaml"

_POD = re.compile(r"[A-Z][0-9]+")


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create the pods of a job file; `job` is the letter that stands for the job from now on.

    With `refused`, the file must be refused at submission with a message that contains this text.
    """

    job: str
    file: str
    refused: str = ""


class Adoption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create pods that run on their nodes already, as the manifests in a file say; `job` is the letter for them."""

    job: str
    file: str


class Creation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create the objects in a file as they stand; `job` is the letter for the pods among them, if there are any."""

    file: str
    job: str = ""


class JobState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected state of a job; a field that is not given is not checked.

    `running`, `waiting`, `done`, `evicted` count pods. Its running pods are on no other nodes than `nodes`, and on
    `node_count` of them. `reason` is part of what every waiting pod is told. `cells` counts the leaf cells that its
    groups hold; `guaranteed` is whether all those groups hold cells of their virtual cluster, or none does.
    `lazily_preempted` is whether they lost theirs to another group. `together`: its pods started in one moment.
    `untouched`: no pod of it was ever evicted. `phase` is where the record says that the job stands.
    `created` counts all pods that it ever had, those in others' places too.
    """

    running: int | None = None
    waiting: int | None = None
    done: int | None = None
    evicted: int | None = None
    nodes: tuple[str, ...] | None = None
    node_count: int | None = None
    reason: str | None = None
    cells: int | None = None
    guaranteed: bool | None = None
    lazily_preempted: bool | None = None
    together: bool | None = None
    untouched: bool | None = None
    phase: str | None = None
    created: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step: exactly one of the actions, or an expectation.

    `finish` and `delete` name a job or one of its pods (`A`, `A0`), `resubmit` and `resume` a job. `fail`, `recover`,
    `cordon`, `uncordon`, `delete_node` and `return_node` name a node. `reconfigure` names a configuration, with which
    the service is started again. `expect` says in words what `jobs`, `bad_nodes` and `podgroups` (the phase of each)
    say to the runner, `because` why it must be so; it has to come true within `within_s` seconds and stay so for
    `hold_s`.
    """

    submit: Submission | None = None
    adopt: Adoption | None = None
    create: Creation | None = None
    finish: str | None = None
    delete: str | None = None
    resubmit: str | None = None
    resume: str | None = None
    fail: str | None = None
    recover: str | None = None
    cordon: str | None = None
    uncordon: str | None = None
    delete_node: str | None = None
    return_node: str | None = None
    reconfigure: str | None = None
    expect: str | None = None
    because: str = ""
    jobs: dict[str, JobState] = {}
    bad_nodes: tuple[str, ...] | None = None
    podgroups: dict[str, str] = {}
    within_s: float = 10.0
    hold_s: float = 0.0

    @property
    def is_checked(self) -> bool:
        """True if its outcome can be wrong."""
        return self.expect is not None or bool(self.submit and self.submit.refused)


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment as written. `shows` is the guarantee in a sentence or two."""

    title: str
    shows: str
    configuration: str
    steps: tuple[Step, ...]


class Loaded(msgspec.Struct, frozen=True):
    """An experiment, its name and the folder that its files are relative to."""

    name: str
    folder: Path
    experiment: Experiment


ACTIONS = (
    "submit", "adopt", "create", "finish", "delete", "resubmit", "resume", "fail", "recover", "cordon", "uncordon",
    "delete_node", "return_node", "reconfigure", "expect",
)  # fmt: skip


def experiments_folder(story: str = "lab") -> Path:
    """Return the folder of a story's experiments: beside this module if installed, else in the checkout's examples."""
    installed = Path(__file__).parent / "experiments" / story
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples" / story


def load_experiments(folder: Path, names: tuple[str, ...] = ()) -> list[Loaded]:
    """Return the experiments of a folder, all or the named ones, in the order of the story.

    Folders are named `01-vc-safety`, ...; the number orders them and is not part of the name. Raises UserError for an
    unknown name or a bad file.
    """
    known = {_name(path): path for path in _folders(folder)}
    if not known:
        raise UserError(f"{folder}: no experiments found")
    for name in names:
        if name not in known:
            raise UserError(f"no experiment is named {name!r}; there are {', '.join(known)}")
    return [_load(name, path) for name, path in known.items() if not names or name in names]


def _folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{FILE}"))


def _name(path: Path) -> str:
    number, _, name = path.name.partition("-")
    return name if number.isdigit() and name else path.name


def _load(name: str, folder: Path) -> Loaded:
    file = folder / FILE
    try:
        experiment = msgspec.yaml.decode(file.read_bytes(), type=Experiment)
    except msgspec.MsgspecError as error:
        raise UserError(f"{file}: {error}") from error
    _check(file, experiment)
    return Loaded(name, folder, experiment)


def _check(file: Path, experiment: Experiment) -> None:
    """Refuse a step without exactly one action, a job that was not submitted, a node that was not deleted."""
    submitted: set[str] = set()
    with_file: set[str] = set()
    deleted: set[str] = set()
    for number, step in enumerate(experiment.steps, start=1):
        begun = step.submit or step.adopt or step.create
        if begun and begun.job not in LETTERS and not (step.create and not begun.job):
            raise UserError(f"{file}: step {number}: job {begun.job!r}: expected a capital letter, but not X")
        actions = [action for action in ACTIONS if getattr(step, action) is not None]
        if len(actions) != 1:
            raise UserError(f"{file}: step {number}: expected exactly one of {', '.join(ACTIONS)}, found {actions}")
        if begun:
            submitted.add(begun.job)
        if step.submit and not step.submit.refused:
            with_file.add(step.submit.job)
        if step.delete_node:
            deleted.add(step.delete_node)
        if step.return_node:
            if step.return_node not in deleted:
                raise UserError(f"{file}: step {number}: node {step.return_node} was not deleted before")
            deleted.remove(step.return_node)
        one_or_all = (name[:1] if _POD.fullmatch(name) else name for name in (step.finish, step.delete) if name)
        named = {*step.jobs, *one_or_all, *(job for job in (step.resubmit, step.resume) if job)}
        if unknown := named - submitted:
            raise UserError(f"{file}: step {number}: job {', '.join(sorted(unknown))} was not submitted before")
        again = step.resubmit or step.resume
        if again and again not in with_file:
            verb = "submit again" if step.resubmit else "resume"
            raise UserError(f"{file}: step {number}: job {again} has no job file to {verb}")
        if step.expect is not None and not step.jobs and not step.podgroups and step.bad_nodes is None:
            raise UserError(f"{file}: step {number}: nothing is checked; expected jobs, bad_nodes or podgroups")
