"""When a job may start by the word of its author: moments, and jobs that have to end first."""

import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.starts import MOST_AWAITED, Awaited, read_start, wait_of, written_after

NOON_S = 1_796_040_000.0
NOON = "2026-11-30T12:00:00Z"


class Jobs:
    """Jobs of namespace lab by name, and ends of others by uid; those are gone, but for some that are not seen."""

    def __init__(self) -> None:
        self.there: dict[str, Job] = {}
        self.ends: dict[str, JobState] = {}
        self.there_unseen: set[str] = set()
        self.makers: dict[str, JobName] = {}
        self.questions = 0

    def add(self, name: str, state: JobState = JobState.RESUMED, *, uid: str = "", **said: str) -> Job:
        """A Job `name` with these words about its start; its uid is `uid-NAME`."""
        keys = {"begin": marks.BEGIN, "after": marks.AFTER}
        annotations = {keys[key]: text for key, text in said.items()}
        ref = JobRef("batch/v1", "Job", "lab", name, uid or f"uid-{name}")
        self.there[name] = Job(ref, "1", 0.0, {}, annotations, (), state)
        return self.there[name]

    def job_of(self, name: JobName) -> Job | None:
        """See `starts.Jobs`."""
        self.questions += 1
        found = (
            self.there.get(name.name) if (name.group, name.kind, name.namespace) == ("batch", "Job", "lab") else None
        )
        return found

    def maker_of(self, name: JobName) -> JobName | None:
        """See `starts.Jobs`."""
        return self.makers.get(name.name)

    def end_of(self, name: JobName, uid: str) -> JobState | None:
        """See `starts.Jobs`."""
        return self.ends.get(uid)

    def unseen(self, name: JobName, uid: str) -> str:
        """See `starts.Jobs`."""
        return "which is not there yet" if not uid or uid in self.there_unseen else ""


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def waits(jobs: Jobs, after: str, now_s: float = NOON_S, **said: str):
    return wait_of(jobs.add("mine", JobState.HELD, after=after, **said), now_s, jobs)


def test_a_job_without_words_about_its_start_may_start(jobs: Jobs) -> None:
    assert wait_of(jobs.add("mine", JobState.HELD), NOON_S, jobs) is None


@pytest.mark.parametrize(("now_s", "waits"), [(NOON_S - 0.5, True), (NOON_S, False), (NOON_S + 9, False)])
def test_a_job_begins_at_its_moment(now_s: float, waits: bool, jobs: Jobs) -> None:
    found = wait_of(jobs.add("mine", JobState.HELD, begin=NOON), now_s, jobs)
    assert (found is not None) is waits
    assert found is None or (found.sentence, found.begin_s) == (f"begins at {NOON}, as its author says", NOON_S)


OK, ANY = "afterok:Job.batch/prep/uid-prep", "afterany:Job.batch/prep/uid-prep"


@pytest.mark.parametrize(
    ("state", "after", "expected"),
    [
        (JobState.RESUMED, OK, "waits until Job prep has succeeded"),
        (JobState.HELD, ANY, "waits until Job prep has ended"),
        (JobState.SUCCEEDED, OK, ""),
        (JobState.SUCCEEDED, ANY, ""),
        (JobState.FAILED, ANY, ""),
        (JobState.FAILED, OK, "never: which has failed"),
    ],
)
def test_a_job_waits_for_the_end_that_it_wants(state: JobState, after: str, expected: str, jobs: Jobs) -> None:
    jobs.add("prep", state)
    check(waits(jobs, after), expected)


def check(found, expected: str) -> None:
    """`expected` is the sentence, or "never: " and a part of it; "" if it may start."""
    if not expected:
        assert found is None
        return
    assert found is not None
    is_never, part = expected.startswith("never: "), expected.removeprefix("never: ")
    assert (found.is_never, part in found.sentence) == (is_never, True), found.sentence


@pytest.mark.parametrize(
    ("after", "known", "expected"),
    [
        (OK, None, "never: which was deleted before it was seen to succeed"),
        (OK, JobState.SUCCEEDED, ""),
        (OK, JobState.FAILED, "never: which has failed"),
        (ANY, None, ""),
        ("afterok:Job.batch/prep", None, "waits until Job prep, which is not there yet, has succeeded"),
        ("afterany:Job.batch/prep", None, "waits until Job prep, which is not there yet, has ended"),
    ],
)
def test_a_job_that_is_gone_has_ended_only_if_that_very_one_was_meant(
    after: str, known: JobState | None, expected: str, jobs: Jobs
) -> None:
    if known is not None:
        jobs.ends["uid-prep"] = known
    check(waits(jobs, after), expected)


def test_another_job_of_the_name_is_not_the_one_that_was_meant(jobs: Jobs) -> None:
    jobs.add("prep", JobState.SUCCEEDED, uid="another")
    check(waits(jobs, OK), "never: which was deleted before it was seen to succeed")
    check(waits(jobs, "afterok:Job.batch/prep"), "")


@pytest.mark.parametrize("after", [OK, ANY])
@pytest.mark.parametrize("is_there_another", [True, False])
def test_a_job_that_is_not_seen_has_not_ended_by_that(after: str, is_there_another: bool, jobs: Jobs) -> None:
    if is_there_another:
        jobs.add("prep", JobState.SUCCEEDED, uid="of an earlier one")
    jobs.there_unseen = {"uid-prep"}
    check(waits(jobs, after), "waits until Job prep, which is not there yet, has ")
    jobs.ends["uid-prep"] = JobState.SUCCEEDED
    check(waits(jobs, after), "")


@pytest.mark.parametrize("kind", ["Foo.example.com", "job.batch", "Job", "Gang.batch"])
@pytest.mark.parametrize("uid", ["", "/uid-prep"])
@pytest.mark.parametrize("condition", ["afterok", "afterany"])
def test_no_job_waits_for_a_kind_that_is_not_followed(kind: str, uid: str, condition: str, jobs: Jobs) -> None:
    jobs.there_unseen = {"uid-prep"}
    check(waits(jobs, f"{condition}:{kind}/prep{uid}"), "never: of a kind that hived does not follow: it never starts")
    jobs.add("behind", JobState.HELD, after=f"{condition}:{kind}/prep{uid}")
    check(waits(jobs, "afterany:Job.batch/behind"), "never: waits for Job behind, which never starts itself")


@pytest.mark.parametrize("after", [ANY, "afterok:Job.batch/prep"])
def test_a_job_that_another_made_is_not_waited_for_but_its_maker(after: str, jobs: Jobs) -> None:
    jobs.makers["prep"] = JobName("jobset.x-k8s.io", "JobSet", "lab", "all")
    jobs.there_unseen = {"uid-prep"}
    check(waits(jobs, after), "never: which JobSet all has made: name that one: it never starts")


def test_all_conditions_have_to_hold_and_those_that_do_are_taken_off(jobs: Jobs) -> None:
    jobs.add("prep", JobState.SUCCEEDED)
    jobs.add("load")
    found = waits(jobs, f"{OK}, afterany:Job.batch/load", begin=NOON)
    assert found is not None
    assert (found.sentence, written_after(found.left)) == ("waits until Job load has ended", "afterany:Job.batch/load")
    jobs.add("load", JobState.FAILED)
    assert waits(jobs, f"{OK}, afterany:Job.batch/load", begin=NOON) is None
    found = waits(jobs, f"{OK}, afterany:Job.batch/load", now_s=NOON_S - 60, begin=NOON)
    assert found is not None
    assert (found.begin_s, written_after(found.left)) == (NOON_S, None)


def test_a_job_that_waits_for_a_moment_and_for_jobs_names_both(jobs: Jobs) -> None:
    jobs.add("prep")
    found = waits(jobs, OK, now_s=NOON_S - 60, begin=NOON)
    assert found is not None
    assert found.sentence == f"waits until Job prep has succeeded, and begins at {NOON} at the earliest"


def test_each_job_that_is_waited_for_has_the_end_that_it_has_to_have(jobs: Jobs) -> None:
    for name in ("prep", "load", "lim"):
        jobs.add(name)
    check(
        waits(jobs, "afterany:Job.batch/prep,afterok:Job.batch/lim,afterany:Job.batch/load"),
        "waits until Job lim has succeeded, and Job prep and Job load have ended",
    )
    check(
        waits(jobs, ",".join(f"{'afterok' if each % 2 else 'afterany'}:Job.batch/j{each}" for each in range(6))),
        "waits until Job j1, which is not there yet, and 2 more have succeeded, and "
        "Job j0, which is not there yet, and Job j2, which is not there yet, and 1 more have ended",
    )


def test_a_job_that_never_starts_names_the_command_that_starts_it(jobs: Jobs) -> None:
    jobs.add("prep", JobState.FAILED)
    check(
        waits(jobs, OK),
        "never: waits for Job prep, which has failed: it never starts; "
        "hived release mine -n lab --now starts it all the same",
    )
    check(
        waits(jobs, "prep"), "never: it starts once that is corrected or removed, or by hived release mine -n lab --now"
    )


def test_jobs_that_wait_for_each_other_are_told(jobs: Jobs) -> None:
    one = jobs.add("one", JobState.HELD, after="afterok:Job.batch/two")
    two = jobs.add("two", JobState.HELD, after="afterok:Job.batch/three")
    three = jobs.add("three", JobState.HELD, after="afterany:Job.batch/one")
    for job in (one, two, three):
        check(wait_of(job, NOON_S, jobs), "never: it never starts")
    itself = jobs.add("itself", JobState.HELD, after="afterok:Job.batch/itself")
    check(wait_of(itself, NOON_S, jobs), "never: which waits for it")


def test_a_job_behind_one_that_never_starts_never_starts(jobs: Jobs) -> None:
    jobs.add("prep", JobState.FAILED)
    jobs.add("use", JobState.HELD, after=OK)
    check(waits(jobs, "afterany:Job.batch/use"), "never: waits for Job use, which never starts itself")


def test_many_ways_to_one_job_are_looked_at_once(jobs: Jobs) -> None:
    for layer in range(1, 12):
        after = ",".join(f"afterok:Job.batch/l{layer - 1}-{each}" for each in range(10))
        for at in range(10):
            jobs.add(f"l{layer}-{at}", JobState.HELD, after=after)
    for at in range(10):
        jobs.add(f"l0-{at}")
    check(waits(jobs, "afterok:Job.batch/l11-0"), "waits until Job l11-0 has succeeded")


def test_every_job_of_a_dense_plan_is_looked_at_once(jobs: Jobs) -> None:
    count, never = 60, dict[JobName, bool]()
    for at in range(count):
        jobs.add(f"j{at}", JobState.HELD, after=",".join(f"afterok:Job.batch/j{each}" for each in range(at)) or OK)
    jobs.add("prep")
    jobs.questions = 0
    for at in range(count):
        found = wait_of(jobs.there[f"j{at}"], NOON_S, jobs, never)
        assert found is not None
        assert not found.is_never
    assert jobs.questions <= 10 * count**2, "a few for each pair that waits"


@pytest.mark.parametrize(("first", "expected"), [(JobState.RESUMED, False), (JobState.FAILED, True)])
def test_a_long_chain_is_followed_to_its_end(first: JobState, expected: bool, jobs: Jobs) -> None:
    jobs.add("j0", first)
    for at in range(1, 3000):
        jobs.add(f"j{at}", JobState.HELD, after=f"afterok:Job.batch/j{at - 1}")
    found = wait_of(jobs.there["j2999"], NOON_S, jobs)
    assert found is not None
    assert found.is_never is expected


def test_a_circle_far_ahead_is_found(jobs: Jobs) -> None:
    jobs.add("a", JobState.HELD, after="afterok:Job.batch/b")
    jobs.add("b", JobState.HELD, after="afterok:Job.batch/a")
    jobs.add("c", JobState.HELD, after="afterok:Job.batch/a")
    jobs.add("free", JobState.HELD, begin=NOON)
    check(wait_of(jobs.there["a"], NOON_S, jobs), "never: waits for Job b, which waits for it")
    check(waits(jobs, "afterok:Job.batch/free,afterok:Job.batch/c"), "never: waits for Job c, which never starts")


def test_a_long_list_names_a_few(jobs: Jobs) -> None:
    found = waits(jobs, ",".join(f"afterok:Job.batch/j{each}" for each in range(5)))
    assert found is not None
    assert found.sentence.endswith("and 2 more have succeeded")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (marks.BEGIN, "tomorrow"),
        (marks.BEGIN, "2026-11-30T12:00:00"),
        (marks.AFTER, "prep"),
        (marks.AFTER, "afternotok:Job.batch/prep"),
        (marks.AFTER, "afterok:Job.batch/other/prep/uid"),
        (marks.AFTER, ",".join(["afterok:Job.batch/a"] * (MOST_AWAITED + 1))),
    ],
)
def test_words_that_cannot_be_read_hold_a_job_and_are_named(key: str, text: str, jobs: Jobs) -> None:
    job = replace(jobs.add("mine", JobState.HELD), annotations={key: text})
    with pytest.raises(UserError, match=f"annotation {key}: "):
        read_start(job.annotations)
    check(wait_of(job, NOON_S, jobs), f"never: annotation {key}: ")


@pytest.mark.parametrize("text", [OK, ANY, "afterok:Job.batch/a,afterany:Job.batch.volcano.sh/b/1", "afterok:Gang/x"])
def test_words_are_written_as_they_were(text: str) -> None:
    assert written_after(read_start({marks.AFTER: text}).after) == text


def test_a_group_belongs_to_the_name() -> None:
    [one] = read_start({marks.AFTER: "afterok:Job.batch.volcano.sh/b"}).after
    assert one == Awaited("afterok", "batch.volcano.sh", "Job", "b")
