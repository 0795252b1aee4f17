"""Random pushes that have to be refused: texts that are no sound configuration, and requests that are no push."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.property.choices import Choices
from tests.storm.documents import Document, chain_of, chains, loads, nodes, text_of, tops, types, vcs

TRIES = 50
HUGE = 10**30

Spoil = Callable[[Choices, Document], str]
"""Makes a text out of a document, which it may change."""


@dataclass(frozen=True)
class Mistake:
    """A request to the service, and the status codes that it may answer with."""

    name: str
    body: bytes
    codes: tuple[int, ...]


def mistaken_text(choices: Choices, document: Document, version: int) -> Mistake:
    """A push of a text that is no sound configuration."""
    for _ in range(TRIES):
        spoil = choices.pick(SPOILS)
        text = spoil(choices, deepcopy(document))
        if not loads(text):
            return Mistake(spoil.__name__.strip("_"), push_body(text, version), (422,))
    raise AssertionError("nothing spoils this document")


def mistaken_body(choices: Choices, document: Document, version: int) -> Mistake:
    """A request that is no push at all."""
    good = push_body(text_of(document), version)
    bodies = {
        "empty": b"",
        "no JSON": b"version: 3",
        "cut off": good[: choices.integer(1, len(good) - 1)],
        "no UTF-8": good.replace(b"physicalCluster", b"physical\xff\xfeCluster", 1),
        "half a character": good.replace(b"physicalCluster", b"physical\\ud800Cluster", 1),
        "a list": b"[" + good + b"]",
        "no text": json.dumps({"baseVersion": version}).encode(),
        "text of a wrong type": json.dumps({"text": choices.pick([1, None, ["a"], {"a": 1}])}).encode(),
        "version of a wrong type": json.dumps(
            {"text": "a", "baseVersion": choices.pick(["1", None, 1.5, []])}
        ).encode(),
        "agreed of a wrong type": json.dumps({"text": "a", "agreed": choices.pick([[], "x", {"g": 1}, None])}).encode(),
        "deeply nested": b'{"text": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    }
    name = choices.pick(sorted(bodies))
    return Mistake(name, bodies[name], (400,))


def push_body(text: str, version: int, **more: Any) -> bytes:
    """A push as it is sent."""
    return json.dumps({"text": text, "baseVersion": version, "who": "storm", "message": "a gust", **more}).encode()


def _body(**fields: Any) -> bytes:
    return json.dumps({"text": "a", **fields}).encode()


# Promises


def _promised_too_much(choices: Choices, document: Document) -> str:
    vc = vcs(document)[choices.pick(sorted(vcs(document)))]
    top = choices.pick(chains(document))
    count = sum(cell["cellType"] == top for cell in tops(document)) + choices.pick([1, 5, 1000, 2**31, HUGE])
    vc.setdefault("virtualCells", []).append({"cellType": top, "cellNumber": count})
    return text_of(document)


def _promise_of_unknown_cells(choices: Choices, document: Document) -> str:
    vc = vcs(document)[choices.pick(sorted(vcs(document)))]
    chain = chain_of(document, choices.pick(chains(document)))
    wrong = choices.pick(["NOTHING", f"{chain[0]}.NOTHING", ".".join(reversed(chain)), f"{chain[0]}.{chain[0]}", ""])
    vc.setdefault("virtualCells", []).append({"cellType": wrong, "cellNumber": 1})
    return text_of(document)


def _promise_of_no_number(choices: Choices, document: Document) -> str:
    vc = vcs(document)[choices.pick(sorted(vcs(document)))]
    number: Any = choices.pick([-1, "many", 1.5, None, [], {}, HUGE, True])
    vc.setdefault("virtualCells", []).append({"cellType": chains(document)[0], "cellNumber": number})
    return text_of(document)


def _unknown_pin(choices: Choices, document: Document) -> str:
    vcs(document)[choices.pick(sorted(vcs(document)))]["pinnedCells"] = [{"pinnedCellId": "nowhere"}]
    return text_of(document)


def _pin_of_two(_choices: Choices, document: Document) -> str:
    tops(document)[0]["pinnedCellId"] = "two"
    for name in ("x", "y"):
        vcs(document)[name] = {"pinnedCells": [{"pinnedCellId": "two"}]}
    return text_of(document)


# Hardware


def _same_node_twice(choices: Choices, document: Document) -> str:
    found = choices.shuffled(nodes(document))
    if len(found) > 1:
        found[0].cell["cellAddress"] = found[1].cell.get("cellAddress", "n00")
    return text_of(document)


def _cycle(choices: Choices, document: Document) -> str:
    chain = chain_of(document, choices.pick(chains(document)))
    types(document)[choices.pick(chain[:-1])]["childCellType"] = chain[0]
    return text_of(document)


def _no_node_level(choices: Choices, document: Document) -> str:
    for name in chain_of(document, choices.pick(chains(document)))[:-1]:
        types(document)[name].pop("isNodeLevel", None)
    return text_of(document)


def _two_node_levels(choices: Choices, document: Document) -> str:
    top = choices.pick(chains(document))
    for name in chain_of(document, top)[:-1]:
        types(document)[name]["isNodeLevel"] = True
    return text_of(document)


def _wrong_child_count(choices: Choices, document: Document) -> str:
    tree = choices.pick([cell for cell in tops(document) if cell.get("cellChildren")] or [{}])
    tree.setdefault("cellChildren", []).append({"cellAddress": "one-too-many"})
    return text_of(document)


def _number_that_is_none(choices: Choices, document: Document) -> str:
    name = choices.pick(chain_of(document, choices.pick(chains(document)))[:-1])
    types(document)[name]["childCellNumber"] = choices.pick([0, -3, "four", 2.5, None, [2], HUGE, 2**31, 10**9])
    return text_of(document)


def _unknown_cell_type(choices: Choices, document: Document) -> str:
    choices.pick(tops(document))["cellType"] = choices.pick(["NOTHING", "", 7, None, ["RACK"]])
    return text_of(document)


# The document


def _unknown_key(choices: Choices, document: Document) -> str:
    places = [
        document,
        document["physicalCluster"],
        choices.pick(tops(document)),
        choices.pick(list(types(document).values())),
    ]
    choices.pick(places)["unheardOf"] = 1
    return text_of(document)


def _part_missing(choices: Choices, document: Document) -> str:
    where, key = choices.pick(
        [(document, "physicalCluster"), (document, "virtualClusters"), (document["physicalCluster"], "cellTypes"),
         (document["physicalCluster"], "physicalCells")]
    )  # fmt: skip
    if choices.chance(50):
        where.pop(key)
    else:
        where[key] = choices.pick([None, [], "", 7])
    return text_of(document)


def _setting_of_wrong_type(choices: Choices, document: Document) -> str:
    key, value = choices.pick(
        [("waitingPodSchedulingBlockMilliSec", "soon"), ("forcePodBindThreshold", -1), ("preemptionBy", "nobody"),
         ("webServerAddress", "everywhere"), ("webServerAddress", ":99999"), ("evictionGraceSeconds", HUGE),
         ("priorityClasses", {"high": 1001}), ("schedulerNames", []), ("topologyLevels", {"rack": "NOTHING"})]
    )  # fmt: skip
    document[key] = value
    return text_of(document)


def _broken_yaml(choices: Choices, document: Document) -> str:
    text = text_of(document)
    at = choices.integer(1, len(text) - 1)
    return text[:at] + choices.pick(["{", "]", "\t", '"', ": :", "\x00", "&a *b", "- -\n"]) + text[at:]


def _cut_off(choices: Choices, document: Document) -> str:
    text = text_of(document)
    return text[: choices.integer(0, len(text) * 3 // 4)]


def _key_twice(choices: Choices, document: Document) -> str:
    text = text_of(document)
    return text + choices.pick(["virtualClusters: {}\n", "physicalCluster: {}\n"])


def _no_document(choices: Choices, _document: Document) -> str:
    return choices.pick(
        ["", "7", "[]", "null", "a: b: c", "--- 1\n--- 2\n", "!!python/object:os.system {}", "\ufeff", "*x"]
    )


def _nested(_choices: Choices, _document: Document) -> str:
    return "a: " + "[" * 5000 + "]" * 5000


SPOILS: tuple[Spoil, ...] = (
    _promised_too_much, _promise_of_unknown_cells, _promise_of_no_number, _unknown_pin, _pin_of_two, _same_node_twice,
    _cycle, _no_node_level, _two_node_levels, _wrong_child_count, _number_that_is_none, _unknown_cell_type,
    _unknown_key, _part_missing, _setting_of_wrong_type, _broken_yaml, _cut_off, _key_twice,
    _no_document, _nested,
)  # fmt: skip
