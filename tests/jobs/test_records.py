"""A record is a ConfigMap that the API server has: one that is not whole is refused, and no job of any list."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import marks
from hived_jobs.records import parse_record
from hived_jobs.submission import JOB
from hived_jobs.suspension import held_records

META = {
    "name": f"{marks.RECORD}train",
    "namespace": "default",
    "uid": "u",
    "labels": {JOB: "train", marks.SUBMITTED_KIND: "Pod"},
}
DATA = {"job.json": "{}", "submission.json": '{"user": "ann"}', "state.json": '{"phase": "Suspended"}'}


def manifest(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {**META, **metadata}, "data": DATA}


def test_a_record_is_read() -> None:
    assert parse_record(manifest()).name == "train"


@pytest.mark.parametrize(
    ("metadata", "missing"), [({"uid": ""}, "metadata.uid"), ({"labels": {JOB: "train"}}, marks.SUBMITTED_KIND)]
)
def test_a_record_that_is_not_whole_is_refused(metadata: dict[str, Any], missing: str) -> None:
    """Without its uid, the pods of others would be taken for those of the job."""
    with pytest.raises(UserError) as refused:
        parse_record(manifest(**metadata))
    expected = f"a ConfigMap is no record of a job: {missing} is missing; do not edit these, delete it"
    assert str(refused.value) == expected


class Listing:
    """An API server with these ConfigMaps."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)

    def list_objects(self, *_: Any, **__: Any) -> "Listing":
        return self


def test_a_record_that_is_not_whole_is_no_held_job() -> None:
    listing: Any = Listing(manifest(), manifest(uid=""))
    assert [job.name for job in held_records(listing)] == ["Pod/default/train"]
