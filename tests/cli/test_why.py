"""`hived why`: the answer as text and as JSON, names of jobs, and changes that are tried."""

import json
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace

from hived_cli import main
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import Certificate, IfResult, Job, Unblock, When, Why
from tests.cli.waiting_service import CERTIFICATE, GANG, GONE, SENTENCE, TRAIN, WHY, WaitingService

QUEUED = QueuedJob(
    name="Job/default/solo",
    namespace="default",
    queue="lang",
    vc="lang",
    user="me",
    priority=0,
    position=1,
    state="Waiting",
    since=0.0,
    reason="is first, and the cells of its virtual cluster are in use",
    gpus=1,
)


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def why(service: WaitingService, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["why", *arguments, "--server", service.url])


def test_a_waiting_gang_has_its_sentence_its_holders_and_what_helps(service: WaitingService) -> None:
    result = why(service, "podgroup/lab/gang")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    said = "2 nodes of 8 H100 each   vision, priority 50   of me   since 2026-01-01 00:00 UTC ("
    head = f"podgroup/lab/gang   Waiting   {said}"
    assert lines[0].startswith(head)
    counts = (
        "1 of 3 nodes of type H100-NODE is free, 1 is in use, 1 is bad; the largest pod that would start now has 8 H100"
    )
    assert lines[1:4] == [f"  {SENTENCE}", f"  cause in-use and bad: {counts}", ""]
    assert lines[4] == "Held by"
    assert lines[6].split()[:5] == ["train-7", "vision", "100", "8", "dgx-1"]
    assert lines[6].endswith("2026-01-01 01:00 UTC")
    assert lines[7:10] == ["  and 3 more", "", "Bad nodes"]
    assert lines[11].split()[:2] == ["dgx-3", "NotReady"]
    assert lines[13] == "What would help, each alone"
    assert lines[14:18] == [
        "  train-7 ends",
        "    --if ends=train-7",
        "  vision is promised 1 more",
        "    --if 'cells=vision:+1xH100 NODE'",
    ]
    ways = "hived delete OTHER ends another job; for cells=, hived config set-vc or hived config move"
    assert lines[18] == f"  how: {ways}"
    assert lines[-2:] == [
        "When",
        "  bounded: any moment, at the latest at 2026-01-01 01:00 UTC, unless a newer job comes first "
        "(2nd in the order of its virtual cluster)",
    ]


@pytest.mark.parametrize("change", ["priority=101", "opportunistic", "vc=lang", "pods=1x8", "leafType=A100"])
def test_a_change_of_the_job_is_carried_out_by_submitting_it_again(service: WaitingService, change: str) -> None:
    certificate = replace(CERTIFICATE, unblock=[Unblock(change=change, text="changed")])
    service.whys[GANG.name] = replace(WHY, certificate=certificate)
    way = "hived delete JOB, and submit it again with the change, such as hived submit FILE --priority N"
    assert f"    --if {change}\n  how: {way}\n" in why(service, "gang").output


def test_a_job_with_a_mistake_has_no_priority(service: WaitingService) -> None:
    job = replace(GANG, vc="", priority=None, asks="", cause="invalid", sentence="leaf-cell-type is 'V100'")
    service.whys[GANG.name] = replace(WHY, job=job)
    assert why(service, "gang").output.startswith("podgroup/lab/gang   Waiting   of me")


def test_nodes_that_kubernetes_refuses_are_named_where_others_are_the_cause(service: WaitingService) -> None:
    rules = "1 of 4 nodes cannot take it (node(s) had untolerated taint {broken: }: dgx-4)"
    service.whys[GANG.name] = replace(WHY, certificate=replace(CERTIFICATE, refused=1, rules=rules))
    assert f"1 is refused by Kubernetes; {rules}" in " ".join(why(service, "gang").output.split())


def test_where_no_change_helps_alone_it_is_said(service: WaitingService) -> None:
    nothing = "What would help\n  no single change that was tried helps; try several together with --if\n"
    service.whys[GANG.name] = replace(WHY, certificate=replace(CERTIFICATE, unblock=[]))
    assert nothing in why(service, "gang").output
    untried = replace(CERTIFICATE, unblock=[], untried="nobody knows")
    service.whys[GANG.name] = replace(WHY, certificate=untried)
    assert "What would help\n  no change could be tried: nobody knows\n" in why(service, "gang").output
    service.whys[GANG.name] = replace(WHY, certificate=Certificate(sentence="1 of 2 pods created", cause="incomplete"))
    assert "What would help" not in why(service, "gang").output


def test_what_can_never_run_waits_for_nobody_and_what_starts_soon_for_no_change(service: WaitingService) -> None:
    never = replace(CERTIFICATE, never=True, cause="never", unblock=[])
    service.whys[GANG.name] = replace(WHY, certificate=never, when=When(kind="never"))
    assert "Held by" not in why(service, "gang").output
    service.whys[GANG.name] = replace(WHY, certificate=replace(CERTIFICATE, unblock=[]), when=When(kind="now"))
    assert "What would help" not in why(service, "gang").output


def test_a_running_job_has_its_nodes_and_no_certificate(service: WaitingService) -> None:
    lines = why(service, "me~train/default").output.splitlines()
    assert (len(lines), lines[1]) == (2, "  on dgx-1")


def test_a_preempted_job_is_told_with_when_and_for_whom(service: WaitingService) -> None:
    service.whys[GONE.name] = Why(job=GONE)
    lines = why(service, "lab/gone").output.splitlines()
    assert lines[0] == "podgroup/lab/gone   Preempted   8 GPUs   lang, opportunistic"
    assert lines[1].startswith("  preempted at 2026-01-01 00:00 UTC (")
    assert lines[1].endswith(" ago) for podgroup/lab/gang")


@pytest.mark.parametrize("form", [["--json"], ["-o", "json"]])
def test_json_is_what_the_service_answers(service: WaitingService, form: list[str]) -> None:
    told = json.loads(why(service, "podgroup/lab/gang", *form).output)
    assert (told["certificate"]["sentence"], told["when"]["kind"]) == (SENTENCE, "bounded")
    assert yaml.safe_load(why(service, "podgroup/lab/gang", "-o", "yaml").output) == told


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("gang", ["-n", "lab"], GANG),
        ("lab/gang-1", [], GANG),
        ("lab/gang", [], GANG),
        ("gang-1", ["-n", "lab"], GANG),
        ("gang-1", [], GANG),
        ("gang", [], GANG),
        ("solo", [], "default/solo"),
        ("train", [], TRAIN),
        ("train-worker-0", [], TRAIN),
    ],
)
def test_a_job_is_found_by_the_names_of_its_pods_and_its_own(
    service: WaitingService, name: str, options: list[str], expected: Job | str
) -> None:
    result = why(service, name, *options)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(expected if isinstance(expected, str) else expected.name)


def test_several_jobs_with_a_name_are_listed_and_one_is_asked_for(service: WaitingService) -> None:
    one, other = (replace(TRAIN, name=f"Job/{where}/fit", namespace=where, pods=[]) for where in ("default", "lab"))
    service.jobs += [one, other]
    service.whys |= {name: Why(job=one) for name in ("Job/default/fit", "default/fit")}
    result = why(service, "fit")
    told = "Error: fit is part of 2 names: Job/default/fit, Job/lab/fit; give one of them\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)
    assert why(service, "fit", "-n", "default").stdout.startswith("Job/default/fit")


def test_a_kind_before_a_name_tells_a_pod_from_a_job_of_the_name(service: WaitingService) -> None:
    job = replace(TRAIN, name="Job/default/solo", namespace="default", pods=[])
    service.jobs.append(job)
    service.whys["Job/default/solo"] = Why(job=job)
    assert why(service, "solo").exit_code == 1
    assert why(service, "pod/solo").stdout.startswith("default/solo ")
    assert why(service, "job/solo").stdout.startswith("Job/default/solo ")


@pytest.mark.parametrize(
    ("name", "expected", "others"),
    [
        ("default/solo", "default/solo", ""),
        ("solo", "", "Error: solo is part of 2 names: Job/default/solo, default/solo; give one of them\n"),
        ("pod/solo", "default/solo", ""),
        ("job/solo", QUEUED.name, ""),
        ("Job/default/solo", QUEUED.name, ""),
    ],
)
def test_a_full_name_goes_before_that_of_a_job_in_a_queue(
    service: WaitingService, name: str, expected: str, others: str
) -> None:
    service.queued = dict.fromkeys((QUEUED.name, "default/solo", "solo"), QUEUED)
    service.whys[QUEUED.name] = Why(job=Job(name=QUEUED.name, state="Waiting"))
    result = why(service, name)
    assert (result.exit_code, result.stderr) == (0 if expected else 1, others)
    assert result.stdout.startswith(f"{expected} " if expected else "")


def test_an_unknown_name_has_its_nearest_ones(service: WaitingService) -> None:
    result = why(service, "gnag-1", "-n", "lab")
    expected = "Error: no job, gang, group or pod 'gnag-1' in namespace lab waits or runs; nearest: "
    assert (result.exit_code, result.stderr) == (1, f"{expected}lab/gang-1, lab/gang-0, podgroup/lab/gang\n")


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("sweep", "default/sweep-worker-0", "default/sweep-worker-0"),
        ("me~second", "default:me~second/default", "default:me~second/default"),
        ("default/secnd", "default:me~second/default", "default:me~second/default"),
    ],
)
def test_the_nearest_names_are_also_those_of_which_the_name_is_a_part(
    service: WaitingService, name: str, known: str, nearest: str
) -> None:
    service.jobs = [replace(TRAIN, name=known, pods=[])]
    assert why(service, name).stderr.endswith(f"nearest: {nearest}\n")


def test_a_job_that_was_submitted_a_moment_ago_is_asked_for_once_more(service: WaitingService) -> None:
    service.jobs, service.unseen = [], [GANG]
    result = why(service, "gang")
    assert (result.exit_code, result.output.startswith(GANG.name)) == (0, True)


def test_an_older_service_is_said_to_be_older() -> None:
    with WaitingService(is_old=True) as service:
        result = why(service, "default/solo")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {service.url}/v1/inspect/jobs does not exist: ")
        assert result.stderr.endswith("update the service, or give another address with --server (HIVED_SERVER)\n")


@pytest.mark.parametrize(
    ("trial", "code", "expected"),
    [
        (IfResult(starts=True, nodes=["dgx-1"]), 0, ["would start at once", "  on dgx-1"]),
        (
            IfResult(starts=True, nodes=["dgx-1"], victims=["train-7"]),
            0,
            ["would start at once", "  on dgx-1", "  and these would have to leave: train-7"],
        ),
        (
            IfResult(starts=False, certificate=Certificate(sentence="no", cause="in-use")),
            3,
            ["would wait all the same", "  no"],
        ),
        (
            IfResult(starts=False, certificate=Certificate(sentence="no", cause="never", never=True)),
            4,
            ["could never run", "  no"],
        ),
    ],
)
def test_a_change_is_tried_and_the_exit_code_says_how_it_went(
    service: WaitingService, trial: IfResult, code: int, expected: list[str]
) -> None:
    service.trial = trial
    result = why(service, "gang", "--if", "priority=200", "--if", "vc=lang")
    assert (result.exit_code, result.output.splitlines()) == (
        code,
        [f"podgroup/lab/gang with priority=200 and vc=lang {expected[0]}", *expected[1:]],
    )
    assert [(each.name, each.changes) for each in service.asked] == [(GANG.name, ["priority=200", "vc=lang"])]


@pytest.mark.parametrize(
    ("pods", "asked", "waiting", "expected"),
    [
        (2, 4, 4, "2 of the 4 waiting pods of podgroup/lab/gang would start at once with vc=lang"),
        (4, 4, 4, "all 4 waiting pods of podgroup/lab/gang would start at once with vc=lang"),
        (9, 64, 70, "9 of the first 64 of 70 waiting pods of podgroup/lab/gang would start at once with vc"),
    ],
)
def test_a_trial_of_pods_that_start_one_by_one_counts_those_that_would(
    service: WaitingService, pods: int, asked: int, waiting: int, expected: str
) -> None:
    service.trial = IfResult(starts=True, nodes=["dgx-1"], pods=pods, asked=asked, waiting=waiting)
    assert why(service, "gang", "--if", "vc=lang").output.startswith(expected)


def test_what_was_tried_is_told_as_json(service: WaitingService) -> None:
    assert json.loads(why(service, "gang", "--if", "opportunistic", "--json").output)["starts"]


def test_a_change_cannot_be_watched(service: WaitingService) -> None:
    result = why(service, "gang", "--if", "opportunistic", "--watch")
    assert (result.exit_code, "--if and --watch exclude each other" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(kind="now"), "now"),
        (When(kind="never", because="no cell is large enough"), "never; no cell is large enough"),
        (When(kind="unknown", because="nothing is known", position=11), "unknown; nothing is known (11th in the order"),
        (When(kind="certain", by="2026-01-01T01:00:00Z"), "certain: any moment, by 2026-01-01 01:00 UTC"),
        (
            When(kind="estimated", likely="2026-01-01T01:00:00Z", by="2026-01-01T02:00:00Z", position=3),
            "estimated: in half of such cases any moment, by 2026-01-01 01:00 UTC; in 9 of 10 any moment, by 2026-01-01"
            " 02:00 UTC (3rd in the order",
        ),
    ],
)
def test_a_start_is_told_with_its_kind(service: WaitingService, when: When, expected: str) -> None:
    service.whys[GANG.name] = Why(job=GANG, when=when)
    assert why(service, "gang").output.splitlines()[-1].startswith(f"  {expected}")


def test_a_name_cannot_write_to_the_terminal(service: WaitingService) -> None:
    service.whys["x"] = Why(job=replace(GANG, user="\x1b[2Jme"))
    assert "\x1b" not in why(service, "x").output


def test_no_change_is_tried_of_a_job_that_has_ended(service: WaitingService) -> None:
    service.whys[GONE.name] = Why(job=GONE)
    result = CliRunner().invoke(main, ["why", GONE.name, "--if", "priority=5", "--server", service.url])
    expected = "podgroup/lab/gone has ended (Preempted): no change is tried"
    assert (result.exit_code, expected in result.output, service.asked) == (1, True, [])
