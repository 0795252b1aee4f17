"""`hived get`: tables and JSON of what the service knows."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace

from hived_cli import main
from hived_extender.api.pictures import letters
from hived_extender.api.waiting import Ended, When
from tests.cli.waiting_service import GANG as WAITING
from tests.cli.waiting_service import GONE, REASON, SOLO, WaitingService
from tests.stub_server import StubServer


def leaf(address, priority=-2, state="Free", healthiness="Healthy", **more):
    return {
        "cellType": "GPU",
        "cellAddress": address,
        "cellState": state,
        "cellHealthiness": healthiness,
        "cellPriority": priority,
        **more,
    }


def node(address, leaves, **more):
    return leaf(address) | {"cellType": "NODE", "isNodeLevel": True, "cellChildren": leaves, **more}


PHYSICAL = [
    leaf("pool", leafCellType="GPU")
    | {
        "cellType": "POOL",
        "cellHealthiness": "Bad",
        "cellChildren": [
            node(
                "pool/n0", [leaf("pool/n0/0", 10, "Used", vc="research"), leaf("pool/n0/1", -1, "Used", vc="product")]
            ),
            node("pool/n1", [leaf("pool/n1/0", 5, "Reserving", vc="product"), leaf("pool/n1/1")]),
            node(
                "pool/n2",
                [leaf(f"pool/n2/{i}", healthiness="Bad") for i in range(2)],
                cellHealthiness="Bad",
            ),
        ],
    },
    node("single", [leaf("single/0"), leaf("single/1", 10, "Used", vc="research")], leafCellType="GPU"),
]
VIRTUAL = {
    "product": [
        node(
            "product/0",
            [leaf("product/0/0", 5, "Used"), leaf("product/0/1")],
            physicalCell=node("pool/n1", []),
        ),
        node("product/1", [leaf("product/1/0"), leaf("product/1/1")]),
        leaf("pool/n0/1-opp", -1, "Used", physicalCell=leaf("pool/n0/1")),
    ],
    "empty": [],
}
GANG = {
    "metadata": {"name": "me~train/default"},
    "status": {
        "vc": "research",
        "priority": 10,
        "state": "Allocated",
        "physicalPlacement": {"single": [1], "pool/n0": [0]},
        "virtualPlacement": {"research/0": ["research/0/0"]},
        "allocatedPods": ["a", "b"],
    },
}
BORROWER = {
    "metadata": {"name": "me~idle/default"},
    "status": {
        "vc": "product",
        "priority": -1,
        "state": "BeingPreempted",
        "physicalPlacement": {"n0": [1]},
        "allocatedPods": ["c"],
        "preemptingPods": ["d"],
        "lazyPreemptionStatus": {"preemptor": "me~urgent/default", "preemptionTime": "2026-11-20T10:00:00Z"},
    },
}
ANSWERS = {
    "/v1/inspect/clusterstatus/physicalcluster": (200, PHYSICAL),
    "/v1/inspect/clusterstatus/virtualclusters/": (200, VIRTUAL),
    "/v1/inspect/clusterstatus/virtualclusters/product": (200, VIRTUAL["product"]),
    "/v1/inspect/affinitygroups/": (200, {"items": [GANG, BORROWER]}),
    "/v1/inspect/affinitygroups/me~train/default": (200, GANG),
}
UNKNOWN = (404, "Affinity group nobody does not exist since it is not allocated or preempting")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with StubServer(lambda request: ANSWERS.get(unquote(request.target), UNKNOWN)) as playback:
        yield playback.url


def run(*arguments: str):
    return CliRunner().invoke(main, arguments)


def lines(*arguments: str) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


DEVICES = [
    {
        "node": "n2", "leafCellType": "GPU", "resource": "nvidia.com/gpu", "leafCells": 2, "lostLeafCells": 1,
        "knownDevices": [], "missingDevices": 0, "usedBy": [{"name": "ns/p", "devices": 1, "byClaim": False}],
        "reason": "1 used by ns/p (not placed by hived)",
    }
]  # fmt: skip


def test_devices_that_cannot_be_had_are_told_beside_their_node(server, monkeypatch):
    monkeypatch.setitem(ANSWERS, "/v1/inspect/devices", (200, DEVICES))
    assert lines("get", "cluster", "--server", server)[:5] == [
        "CELL     TYPE   HEALTH       USED   CELLS   DEVICES",
        "pool     POOL   1 bad of 3    3/6",
        "  n0     NODE   Healthy       2/2   Rp",
        "  n1     NODE   Healthy       1/2   ~.",
        "  n2     NODE   Bad           0/2   xx      1 used by ns/p (not placed by hived)",
    ]


def test_a_virtual_cluster_is_told_which_of_its_cells_lack_devices(server, monkeypatch):
    short = leaf("product/1/1", healthiness="Bad", physicalCell=leaf("pool/n2/1"))
    cells = [VIRTUAL["product"][0], node("product/1", [leaf("product/1/0"), short], cellHealthiness="Bad")]
    monkeypatch.setitem(ANSWERS, "/v1/inspect/clusterstatus/virtualclusters/product", (200, cells))
    monkeypatch.setitem(ANSWERS, "/v1/inspect/devices", (200, DEVICES))
    assert lines("get", "vc", "product", "--server", server)[4:6] == [
        "product: 1 of 2 promised cells lacks GPUs",
        "  product/1 is short of 1 on n2: 1 used by ns/p (not placed by hived)",
    ]


def test_a_virtual_cluster_is_told_of_a_shortage_that_it_shares(server, monkeypatch):
    message = "VCs product, research together are promised 1 GPU more of POOL than can be had"
    shared = {
        "chain": "POOL", "virtualClusters": ["product", "research"], "shortCells": {"GPU": 1}, "message": message,
        "reasons": ["on n2: not healthy"],
    }  # fmt: skip
    monkeypatch.setitem(ANSWERS, "/v1/inspect/shortages", (200, [shared]))
    assert lines("get", "vc", "product", "--server", server)[-4:-2] == [message, "  on n2: not healthy"]
    monkeypatch.setitem(ANSWERS, "/v1/inspect/shortages", (200, [shared | {"virtualClusters": ["research"]}]))
    assert message not in lines("get", "vc", "product", "--server", server)


@pytest.mark.parametrize(("rules", "expected"), [(2, True), ("hived", False)])
def test_the_cluster_is_shown_with_its_rules_if_they_are_not_those_of_hived(server, monkeypatch, rules, expected):
    monkeypatch.setitem(ANSWERS, "/v1/inspect/rules", (200, {"rules": rules}))
    assert (lines("get", "cluster", "--server", server)[-1] == "rules: 2") == expected


def test_the_cluster_is_a_picture_of_every_leaf(server):
    assert lines("get", "cluster", "--server", server) == [
        "CELL     TYPE   HEALTH       USED   CELLS",
        "pool     POOL   1 bad of 3    3/6",
        "  n0     NODE   Healthy       2/2   Rp",
        "  n1     NODE   Healthy       1/2   ~.",
        "  n2     NODE   Bad           0/2   xx",
        "single   NODE   Healthy       1/2   .R",
        "",
        "P product   R research   lower case opportunistic   . free   x bad, not in use   ~ reserved",
    ]


def test_wide_names_the_groups_on_each_node(server):
    shown = lines("get", "cluster", "-o", "wide", "--server", server)
    assert shown[2].endswith("Rp      me~idle/default")
    assert shown[5].endswith(".R      me~train/default")


def test_a_virtual_cluster_shows_its_promise_and_what_it_borrows(server):
    assert lines("get", "vc", "--server", server) == [
        "VC        CELL              TYPE   HEALTH    USED   CELLS   BOUND TO",
        "product   product/0         NODE   Healthy    1/2   #.      pool/n1",
        "          product/1         NODE   Healthy    0/2   ..      -",
        "          (opportunistic)                       1   o       n0",
        "empty     (opportunistic)                       0           -",
        "",
        "# in use   o in use beyond the promise   . free   x bad, not in use   ~ reserved",
    ]


def test_one_virtual_cluster_can_be_asked_for(server):
    assert all("empty" not in line for line in lines("get", "vc", "product", "--server", server))


def test_groups_are_listed_by_name(server):
    assert lines("get", "groups", "--server", server) == [
        "GROUP              VC              PRIORITY   STATE            PODS           NODES             "
        "LAZILY PREEMPTED BY",
        "me~idle/default    product    opportunistic   BeingPreempted   1 +1 waiting   n0                "
        "me~urgent/default 2026-11-20T10:00:00Z",
        "me~train/default   research              10   Allocated        2              pool/n0, single   -",
    ]


def test_a_group_is_never_said_to_be_its_own_preemptor(server, monkeypatch):
    lazy = {"preemptor": "me~idle/default", "preemptionTime": "2026-11-20T10:00:00Z"}
    group = BORROWER | {"status": BORROWER["status"] | {"lazyPreemptionStatus": lazy}}
    monkeypatch.setitem(ANSWERS, "/v1/inspect/affinitygroups/me~idle/default", (200, group))
    [_, row] = lines("get", "groups", "me~idle/default", "--server", server)
    assert row.endswith("   unknown, its VC has no place for it 2026-11-20T10:00:00Z")


def test_cells_held_for_a_group_on_the_move_are_marked(server, monkeypatch):
    group = GANG | {"metadata": {"name": "_moving:1:me:g"}, "status": GANG["status"] | {"heldFor": "me:g"}}
    monkeypatch.setitem(ANSWERS, "/v1/inspect/affinitygroups/", (200, {"items": [group]}))
    [_, row] = lines("get", "groups", "--server", server)
    assert row.split("   ")[0] == "_moving:1:me:g"
    assert "   held for me:g   -   " in row


def test_the_loss_of_groups_is_shown_with_their_devices(server, monkeypatch):
    began = datetime.now(UTC) - timedelta(hours=6)
    work = {"startedAt": "2026-01-01T00:00:00Z", "since": began.isoformat(), "leafCells": 8}
    group = GANG | {"status": GANG["status"] | {"work": work, "leafCellTypes": ["CPU"]}}
    old = GANG | {"metadata": {"name": "old"}, "status": GANG["status"] | {"work": work}}
    monkeypatch.setitem(ANSWERS, "/v1/inspect/affinitygroups/", (200, {"items": [group, BORROWER, old]}))
    head, idle, train, unknown = lines("get", "groups", "-o", "wide", "--server", server)
    assert re.search(r"   TYPE   PLACEMENT .* LOSS   ", head)
    assert float(train.split(" CPU-h")[0].split()[-1]) >= 48
    assert "   CPU    pool/n0[0] single[1]   " in train
    assert "   48.0 cell-h   " in unknown
    assert "-h" not in idle


def test_one_group_is_shown_with_its_devices(server):
    assert "pool/n0[0] single[1]" in lines("get", "groups", "me~train/default", "--server", server)[1]


@pytest.mark.parametrize(("name", "cells"), [("pool/n1", ["pool/n1"]), ("n1", ["pool/n1"]), ("single", ["single"])])
def test_one_cell_of_the_cluster_is_shown_with_the_letters_of_the_whole(name, cells, server):
    whole = lines("get", "cluster", "--server", server)
    shown = lines("get", "cluster", name, "--server", server)
    assert [line.split()[0] for line in shown[1:] if line and not line.startswith("A ")][: len(cells)] == cells
    row = next(line for line in whole if line.split()[:1] == [cells[0].split("/")[-1]])
    assert shown[1].split()[1:] == row.split()[1:]
    told = json.loads("\n".join(lines("get", "cluster", name, "-o", "json", "--server", server)))
    assert [each["cellAddress"] for each in told] == cells


def test_a_cell_of_several_nodes_is_shown_with_them(server):
    assert [line.split()[0] for line in lines("get", "cluster", "pool", "--server", server)[1:5]] == [
        "pool",
        "n0",
        "n1",
        "n2",
    ]


def test_a_cell_that_there_is_not_is_a_mistake(server):
    for name in ("n9", "0", "pool/n1/7"):
        told = run("get", "cluster", name, "--server", server)
        assert (told.exit_code, told.stderr.startswith(f"Error: no cell or node '{name}'; ")) == (1, True)
    assert run("get", "cluster", "singel", "--server", server).stderr.endswith("; nearest: single\n")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["cluster"], PHYSICAL),
        (["vc"], VIRTUAL),
        (["vc", "product"], VIRTUAL["product"]),
        (["groups"], {"items": [GANG, BORROWER]}),
        (["groups", "me~train/default"], GANG),
    ],
)
def test_json_is_what_the_service_serves(arguments, answer, server):
    assert json.loads("\n".join(lines("get", *arguments, "-o", "json", "--server", server))) == answer
    assert yaml.safe_load("\n".join(lines("get", *arguments, "-o", "yaml", "--server", server))) == answer


def test_the_address_may_come_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("HIVED_SERVER", server + "/")
    assert lines("get", "groups")[2].startswith("me~train/default")


def test_a_group_that_is_not_there_is_a_mistake(server):
    result = run("get", "groups", "nobody", "--server", server)
    nearest = "no affinity group 'nobody' has or awaits cells; hived get groups lists all"
    assert (result.exit_code, result.stderr) == (1, f"Error: {nearest}\n")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1", "Error: no answer from http://127.0.0.1:1: [Errno 111] Connection refused; "),
        ("127.0.0.1:1", "Error: no answer from http://127.0.0.1:1: [Errno 111] Connection refused; "),
        ("http://[::1", "Error: server 'http://[::1': expected an address such as http://127.0.0.1:9096\n"),
        ("http://host:abc", "Error: server 'http://host:abc': expected an address such as http://127.0.0.1:9096\n"),
        ("ftp://a", "Error: server 'ftp://a': expected an address such as http://127.0.0.1:9096\n"),
    ],
)
def test_a_service_that_cannot_be_reached_is_named(address, message):
    result = run("get", "cluster", "--server", address)
    assert result.exit_code == 1
    assert result.stderr.startswith(message)


def test_a_service_without_tls_is_said_to_speak_http(server):
    address = server.replace("http:", "https:")
    result = run("get", "cluster", "--server", address)
    expected = f"Error: {address} speaks no TLS: it is an http address, not https; try {server}\n"
    assert (result.exit_code, result.stderr) == (1, expected)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-x\r\n", "does not answer as hived does: expected HTTP, found BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]", "expected HTTP, found IncompleteRead"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\n[]", "answered 500 Oh"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff", "does not answer as hived does: "),
    ],
)
def test_what_is_no_answer_of_the_service_is_told(answer, message):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        player = threading.Thread(target=play, daemon=True)
        player.start()
        result = run("get", "cluster", "--server", f"127.0.0.1:{listener.getsockname()[1]}")
        player.join(60)
    assert (result.exit_code, message in result.stderr) == (1, True), result.output


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["product", "research"], "PR"),
        (["vc1", "vc2", "vc3"], "ABC"),
        (["1st", "2nd"], "AB"),
        (["x", "y"], "AB"),
        ([f"vc{i}" for i in range(27)], "ABCDEFGHIJKLMNOPQRSTUVWYZ##"),
    ],
)
def test_letters_are_initials_or_the_alphabet(names, expected):
    assert "".join(letters(names).values()) == expected


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def get(service: WaitingService, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["get", *arguments, "--server", service.url])


def rows(service: WaitingService, *arguments: str) -> list[list[str]]:
    result = get(service, *arguments)
    assert result.exit_code == 0, result.output
    return [[cell.strip() for cell in line.split("   ") if cell] for line in result.output.splitlines()]


def test_jobs_have_their_reason_and_their_start(service: WaitingService) -> None:
    header, gang, solo, train = rows(service, "jobs")
    assert header == ["JOB", "VC", "STATE", "FOR", "ASKS", "WHEN", "REASON"]
    assert gang[:3] == ["podgroup/lab/gang", "vision", "Waiting"]
    assert gang[4:] == ["2 nodes of 8 H100 each", "any moment (bounded)", REASON]
    assert solo == ["default/solo", "lang", "Running", "-", "1x1 H100", "-"]
    assert train[0] == "me~train/default"


def test_a_preempted_job_says_when_and_for_whom(service: WaitingService) -> None:
    service.jobs = [GONE]
    (row,) = rows(service, "jobs")[1:]
    assert row[:3] == ["podgroup/lab/gone", "lang", "Preempted"]
    assert row[-1] == "preempted at Jan 1 00:00 for gang"
    assert rows(service, "jobs", "--waiting") == [["No such job waits or runs."]]


def test_wide_jobs_have_users_priorities_and_nodes(service: WaitingService) -> None:
    _, gang, solo, train = rows(service, "jobs", "-o", "wide")
    assert gang[2:4] == ["me", "50"]
    assert solo[2:4] == ["-", "opportunistic"]
    assert train[-1] == "dgx-1"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--waiting"], ["podgroup/lab/gang"]),
        (["--vc", "lang"], ["default/solo"]),
        (["--user", "me"], ["podgroup/lab/gang", "me~train/default"]),
        (["--state", "running"], ["default/solo", "me~train/default"]),
        (["-n", "lab"], ["podgroup/lab/gang"]),
        (["--vc", "vision", "--state", "Running"], ["me~train/default"]),
    ],
)
def test_jobs_can_be_chosen(service: WaitingService, options: list[str], names: list[str]) -> None:
    assert [row[0] for row in rows(service, "jobs", *options)[1:]] == names
    told = json.loads(get(service, "jobs", *options, "-o", "json").output)
    assert [job["name"] for job in told["items"]] == names


def test_nothing_that_waits_is_said_so(service: WaitingService) -> None:
    assert get(service, "jobs", "--user", "nobody").output == "No such job waits or runs.\n"
    service.jobs = []
    assert get(service, "jobs").output == "No job waits or runs.\n"
    assert get(service, "jobs", "--ended").output == "No job has ended within 1d.\n"
    assert get(service, "jobs", "--ended", "--user", "nobody").output == "No such job has ended within 1d.\n"


def test_jobs_on_a_node_that_is_not_there_are_a_mistake(service: WaitingService) -> None:
    service.jobs = []
    node = service.nodes[0].node
    assert get(service, "jobs", "--node", node).output == "No such job waits or runs.\n"
    result = get(service, "jobs", "--node", f"{node}x")
    assert (result.exit_code, result.stderr) == (1, f"Error: no node '{node}x'; nearest: dgx-1, dgx-3\n")


def test_jobs_of_a_virtual_cluster_that_is_not_there_are_a_mistake(service: WaitingService) -> None:
    result = get(service, "jobs", "--vc", "visoin")
    assert (result.exit_code, result.output) == (1, "Error: no virtual cluster 'visoin'; there are vision, lang\n")


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["jobs", "slo"], "no job, gang, group or pod 'slo' waits or runs; nearest: default/solo"),
        (["jobs", "ovr", "--ended"], "no job, gang, group or pod 'ovr' has ended; nearest: default/over"),
        (["jobs", "over"], "default/over has ended (Completed): hived get jobs over --ended shows it"),
        (["jobs", "solo", "--ended"], "default/solo has not ended: it is running"),
        (["jobs", "--vc", "visoin"], "no virtual cluster 'visoin'; there are vision, lang"),
        (["vc", "visoin"], "no virtual cluster 'visoin'; there are vision, lang"),
        (["groups", "solo"], "no affinity group 'solo'; it is part of default/solo, a job: hived get jobs solo, or"),
    ],
)
def test_a_name_that_means_nothing_is_a_mistake(
    service: WaitingService, arguments: list[str], said: str, form: str
) -> None:
    over = replace(SOLO, name="default/over", pods=[], state="Completed", ended=Ended(at="2026-01-01T00:00:00Z"))
    service.ended = [over]
    result = get(service, *arguments, "-o", form)
    assert (result.exit_code, said in result.stderr) == (1, True), result.output


def test_a_job_that_other_options_leave_out_is_no_mistake(service: WaitingService) -> None:
    result = get(service, "jobs", "solo", "--state", "waiting")
    assert (result.exit_code, result.output) == (0, "No such job is waiting.\n")


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("pending", ["podgroup/lab/gang"]),
        ("Queued", ["podgroup/lab/gang"]),
        ("pd", ["podgroup/lab/gang"]),
        ("held,PD", ["podgroup/lab/gang"]),
        ("CD", ["default/over"]),
        ("f, completed", ["default/over"]),
        ("succeeded", ["default/over"]),
        ("COMPLETED", ["default/over"]),
    ],
)
def test_states_have_the_words_of_kubectl_and_slurm_too(service: WaitingService, word: str, names: list[str]) -> None:
    service.ended = [replace(SOLO, name="default/over", state="Completed", ended=Ended(at="2026-01-01T00:00:00Z"))]
    told = json.loads(get(service, "jobs", "--state", word, "-o", "json").output)
    assert [job["name"] for job in told["items"]] == names


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("waiting", "No such job is waiting.\n"),
        ("pending", "No such job is waiting or preempting or held or refused.\n"),
        ("preempted", "No such job is gone after a preemption; hived why says it of one that waits or runs again.\n"),
    ],
)
def test_no_job_in_a_state_is_said_in_words(service: WaitingService, state: str, said: str) -> None:
    service.jobs = [SOLO]
    assert get(service, "jobs", "--state", state).output == said


def test_several_names_are_shown_in_their_order_and_each_job_once(service: WaitingService) -> None:
    assert [row[0] for row in rows(service, "jobs", "solo", "gang", "default/solo")[1:]] == [
        "default/solo",
        "podgroup/lab/gang",
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_of_several_names_known_ones_are_shown_and_unknown_ones_are_told(service: WaitingService, form: str) -> None:
    result = get(service, "jobs", "solo", "gong", "-o", form)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: no job, gang, group or pod 'gong' waits or runs; nearest: podgroup/lab/gang"
    )
    assert "default/solo" in result.stdout
    assert "podgroup/lab/gang" not in result.stdout


@pytest.mark.parametrize("what", ["jobs", "queue"])
def test_jobs_of_either_of_two_users_are_not_asked_for(service: WaitingService, what: str) -> None:
    result = get(service, what, "--me", "--user", "x")
    assert (result.exit_code, "expected --me or --user, not both" in result.stderr) == (2, True)


def test_waiting_is_a_state_already(service: WaitingService) -> None:
    result = get(service, "jobs", "--waiting", "--state", "Running")
    assert (result.exit_code, "--waiting and --state exclude each other" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, "..."),
        (When(kind="now"), "now"),
        (When(kind="never"), "never"),
        (When(kind="unknown"), "unknown"),
        (When(kind="certain", by="2026-01-01T01:00:00Z"), "any moment (certain)"),
        (
            When(kind="estimated", likely="2026-01-01T01:00:00Z", by="2026-01-01T02:00:00Z"),
            "any moment (estimated)",
        ),
    ],
)
def test_a_start_is_told_with_its_kind(service: WaitingService, when: When | None, expected: str) -> None:
    service.jobs = [replace(WAITING, when=when)]
    assert rows(service, "jobs")[1][5] == expected


def test_a_wide_table_says_why_a_start_is_unknown(service: WaitingService) -> None:
    service.jobs = [replace(WAITING, when=When(kind="unknown", because="it is suspended"))]
    assert "unknown: it is suspended" in get(service, "jobs", "-o", "wide").output
    assert "unknown: " not in get(service, "jobs").output


def test_nodes_have_their_health_and_their_jobs(service: WaitingService) -> None:
    header, one, three = rows(service, "nodes")
    assert header == ["NODE", "HEALTH", "FOR", "CELLS", "FREE", "LOST", "REASON", "JOBS"]
    assert one == ["dgx-1", "Healthy", "-", "8", "0", "-", "-", "me~train/default"]
    assert (three[:2], three[3:]) == (["dgx-3", "Bad"], ["8", "0", "2", "NotReady", "-"])


def test_bad_nodes_are_asked_for_alone(service: WaitingService) -> None:
    assert [row[0] for row in rows(service, "nodes", "--bad")[1:]] == ["dgx-3"]
    assert [node["node"] for node in json.loads(get(service, "nodes", "--bad", "-o", "json").output)] == ["dgx-3"]


def test_free_cells_have_a_row_for_each_level(service: WaitingService) -> None:
    assert rows(service, "free")[1:] == [
        ["vision", "H100-POOL", "H100", "1", "24", "8", "0", "8", "8", "0"],
        ["H100-NODE", "8", "3", "1", "0", "1", "1", "0"],
        ["lang", "H100-POOL", "H100", "1", "8", "0", "1", "0", "8", "0"],
    ]


def test_free_cells_of_a_virtual_cluster_that_is_not_there_name_the_others(service: WaitingService) -> None:
    result = get(service, "free", "visoin")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: no virtual cluster 'visoin'; there are vision, lang\n",
    )


@pytest.mark.parametrize("what", ["jobs", "nodes", "free"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_an_older_service_is_said_to_be_older(what: str, form: str) -> None:
    with WaitingService(is_old=True) as service:
        result = get(service, what, "-o", form)
    assert result.exit_code == 1
    assert (
        f"/v1/inspect/{what.replace('free', 'free-cells')} does not exist: its version of hived is older"
        in result.stderr
    )
