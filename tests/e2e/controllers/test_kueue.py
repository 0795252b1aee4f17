"""Kueue with its own controllers and webhooks: jobs get quota from it, and cells from us."""

import json
from collections.abc import Iterator

import pytest

from hived_extender.kueue.writing import AT_WORK
from tests.e2e.controllers.kueue_racks import (
    KueueRacks,
    cluster_queue,
    deployment,
    queued_job,
    queued_pod,
    running_kueue,
)
from tests.e2e.controllers.racks import VC
from tests.e2e.plane import ControlPlane


@pytest.fixture(scope="module")
def shared(plane: ControlPlane, podgroup_kinds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueRacks]:
    with running_kueue(plane, tmp_path_factory.mktemp("racks")) as running:
        yield running


@pytest.fixture
def kueue(shared: KueueRacks) -> Iterator[KueueRacks]:
    yield shared
    shared.clean()


def test_a_job_runs_on_the_cells_that_were_held_for_it(kueue: KueueRacks) -> None:
    kueue.set_up()
    kueue.racks.create(queued_job("train", 2))
    kueue.until_check("train", "Ready", "cells are held: 2 pods x 4")
    kueue.racks.await_whole("train", 2)
    kueue.until_settled()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "pod", "group"])
def test_plain_pods_take_the_cells_that_were_held_for_them(kueue: KueueRacks, kind: str) -> None:
    kueue.set_up()
    if kind == "pod":
        kueue.racks.create(*(queued_pod(f"serve-{number}") for number in range(3)))
    elif kind == "group":
        kueue.racks.create(*(queued_pod(f"serve-{number}", group="serve", count=3) for number in range(3)))
    else:
        kueue.racks.create(deployment("serve", 3, kind=kind))
    kueue.racks.until(lambda: len(kueue.racks.bound("serve")) == 3, "3 bound pods")
    kueue.until_settled()


def test_a_cohort_that_may_lend_is_warned_of(kueue: KueueRacks) -> None:
    kueue.set_up(queue=cluster_queue(VC, cohortName="all"))
    kueue.racks.until(lambda: "may borrow quota" in kueue.says_active(), "a warning")
    assert VC in kueue.says_active()
    kueue.plane.kubectl("replace", "-f", "-", stdin=json.dumps(cluster_queue(VC, limit=0, cohortName="all")))
    kueue.racks.until(lambda: kueue.says_active() == AT_WORK, "no warning any more")
