"""Every kind of job whose controller can be had, beside it. No Ray runs in the pods, so a RayJob is never submitted."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import (
    JOBSET,
    KUBERAY,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
    TRAINER,
    TRAINING_OPERATOR,
)
from tests.e2e.controllers.test_trainer import training_runtime
from tests.e2e.plane import ControlPlane
from tests.e2e.test_kinds import play
from tests.e2e.test_queues import kinds
from tests.kinds.played import Played
from tests.kinds.table import ROWS

__all__ = ["kinds"]

BY_NAME = {row.name: row for row in ROWS}
OF_KUBEFLOW = ("pytorch", "elastictorch", "tensorflow", "mpi", "xgboost", "paddle", "jax", "train")
BESIDE = {
    "all": (
        (JOBSET, LEADER_WORKER_SET, TRAINER, TRAINING_OPERATOR, KUBERAY),
        ("leader", "jobset", "jobsets", *OF_KUBEFLOW, "rayjob", "raycluster", "rayservice"),
    ),
    "mpi-operator": ((MPI_OPERATOR,), ("mpi2",)),
}
"""The rows that are played beside each set of controllers; those of Kubeflow's two have one kind in common."""

WITH_QUEUES = " with queues"

CHANGED = {"rayjob": replace(BY_NAME["rayjob"], pods=3, ends=False)}
"""Without Ray its head never answers, so there is no submitter."""


@pytest.fixture(scope="module", params=[f"{key}{more}" for key in BESIDE for more in ("", WITH_QUEUES)])
def played(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    podgroup_kinds: None,
    kinds: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, Played]]:
    """The jobs of a set of controllers, without queues and with them."""
    key, with_queues, _ = request.param.partition(WITH_QUEUES)
    controllers, names = BESIDE[key]
    with ExitStack() as stack:
        for each in controllers:
            stack.enter_context(installed(plane, each))
        if TRAINER in controllers:
            stack.enter_context(training_runtime(plane))
        rows = [CHANGED.get(name, BY_NAME[name]) for name in names]
        yield play(plane, tmp_path_factory.mktemp("kinds"), rows, has_queues=bool(with_queues))


def test_jobs_are_known_from_their_creation_to_their_end(played: Mapping[str, Played]) -> None:
    found = {name: each.skipped or each.wrong for name, each in played.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
