"""The state of units on their jobs: read as written, and believed only with a seal (rule 32.9)."""

import json

import pytest

from hived_extender.jobs.bind_info import Prover
from hived_extender.queues.table import STATE, Kept, read_kept, written

KEPT = Kept(is_resumed=True, is_borrowed=True, since_s=5.5, entitled_s=7.0, attempts=2, place=1.5)


def test_what_was_written_is_read() -> None:
    prover = Prover([b"k" * 32])
    assert read_kept(written(KEPT, "uid", prover), "uid", prover) == KEPT


def test_a_state_of_another_job_is_not_believed() -> None:
    prover = Prover([b"k" * 32])
    assert read_kept(written(KEPT, "other", prover), "uid", prover) == Kept()


def test_a_state_that_somebody_else_wrote_is_not_believed() -> None:
    assert read_kept(written(KEPT, "uid", Prover()), "uid", Prover([b"k" * 32])) == Kept()


def test_a_state_that_was_signed_with_an_older_key_is_believed() -> None:
    assert read_kept(written(KEPT, "uid", Prover([b"a" * 32])), "uid", Prover([b"b" * 32, b"a" * 32])) == KEPT


def test_everybody_is_believed_without_a_key() -> None:
    assert read_kept(written(KEPT, "uid", Prover()), "other", Prover()) == KEPT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "[]",
        '{"kept": 3}',
        '{"kept": "{"}',
        '{"kept": "[]"}',
        '{"kept": "{\\"since_s\\": 1e999}"}',
        "[" * 4096,
    ],
)
def test_whatever_else_stands_there_counts_as_nothing(text: str) -> None:
    assert read_kept({STATE: text}, "uid", Prover()) == Kept()


def test_a_job_without_the_annotation_has_no_state() -> None:
    assert read_kept({}, "uid", Prover([b"k" * 32])) == Kept()


def test_keys_on_jobs_are_those_of_earlier_releases() -> None:
    kept = Kept(version=1, is_resumed=True, leaf_count=8, entitled_s=2.0, is_held=True, is_suspended=True)
    found = json.loads(json.loads(written(kept, "u", Prover())[STATE])["kept"])
    assert found == {
        "version": 1,
        "is_let_go": True,
        "leaf_count": 8,
        "due_s": 2.0,
        "is_held": True,
        "is_suspended": True,
    }
    assert read_kept(written(kept, "u", Prover()), "u", Prover()) == kept
