"""PodGroups that Volcano's controller makes for pods of others, unasked (rule 23.6)."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import table, volcano
from hived_extender.jobs.kinds.description import Description
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE
from hived_extender.jobs.kinds.volcano import GROUP_NAMES, MINIMUM, QUEUE
from hived_extender.jobs.wire import Owner
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, make_pod, podgroup_ref, podgroups
from tests.extender.jobs.kinds.descriptions import UID as POD_UID

OWNER = Owner("Job", "train", "99999999-8888-7777-6666-555555555555", True)
MADE_FOR = {None: {GROUP_NAMES[0]: f"podgroup-{POD_UID}"}, OWNER: {GROUP_NAMES[0]: f"podgroup-{OWNER.uid}"}}
LABELLED = {GROUP_NAME: "train", MIN_AVAILABLE: "3"}


def made(owner: Owner | None, spec: Any) -> Cluster:
    return podgroups(volcano.PODGROUPS.group, spec, name=MADE_FOR[owner][GROUP_NAMES[0]])


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("minimum", [1, 3])
def test_a_podgroup_that_the_controller_made_is_overridden_by_a_gang_of_another_dialect(
    owner: Owner | None, minimum: int
) -> None:
    written = MADE_FOR[owner] | {QUEUE: "research"}
    for objects in (made(owner, {"minMember": minimum, "queue": "research"}), Cluster()):
        said = describe(LABELLED, written, objects, owner=owner)
        assert said is not None
        assert (said.gang, said.minimum, said.queue, said.source, said.missing) == (TRAIN, 3, "research", None, None)


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("spec", [{"minMember": 1}, {}])
def test_a_podgroup_that_the_controller_made_for_one_pod_is_no_gang(owner: Owner | None, spec: Any) -> None:
    assert describe({}, MADE_FOR[owner], made(owner, spec), owner=owner) is None
    queued = spec | {"queue": "research"}
    assert describe({}, MADE_FOR[owner], made(owner, queued), owner=owner) == Description(
        volcano.VOLCANO.name, queue="research"
    )


def test_a_podgroup_that_the_controller_made_for_several_pods_is_a_gang() -> None:
    said = describe({}, MADE_FOR[OWNER], made(OWNER, {"minMember": 3}), owner=OWNER)
    assert said is not None
    assert (said.minimum, said.source) == (3, podgroup_ref(volcano.PODGROUPS.group, MADE_FOR[OWNER][GROUP_NAMES[0]]))
    before = describe({}, MADE_FOR[OWNER], Cluster(), owner=OWNER)
    assert before is not None
    assert before.missing


@pytest.mark.parametrize("written", [MADE_FOR[OWNER], MADE_FOR[OWNER] | {MINIMUM: "2"}, {GROUP_NAMES[0]: "train"}])
def test_a_podgroup_that_the_author_asked_for_is_not_overridden(written: dict[str, str]) -> None:
    owner = OWNER if MINIMUM in written else None
    with pytest.raises(UserError, match="dialects disagree"):
        describe(LABELLED, written, podgroups(volcano.PODGROUPS.group, {"minMember": 2}), owner=owner)


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, False),
        ({}, MADE_FOR[None], False),
        ({}, {GROUP_NAMES[0]: "train"}, True),
        ({}, MADE_FOR[None] | {MINIMUM: "1"}, True),
        ({}, MADE_FOR[None] | {QUEUE: "research"}, True),
        (LABELLED, MADE_FOR[None], True),
    ],
)
def test_what_the_controller_writes_onto_every_pod_makes_it_none_of_ours(
    labels: dict[str, str], annotations: dict[str, str], expected: bool
) -> None:
    assert table.is_marked_by_author(make_pod(labels, annotations)) is expected
