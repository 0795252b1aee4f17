"""Random changes to a configuration, such as administrators make, that leave it sound."""

from collections.abc import Callable
from copy import deepcopy

from tests.property.choices import Choices
from tests.storm import hardware
from tests.storm.documents import (
    Document,
    first_document,
    fitted,
    promises_of,
    text_of,
    types,
    vcs,
)

TRIES = 60
HOMEWARD = 10
"""Percent of the changes that begin with the first document: large ones, and they keep the hardware from dwindling."""

VC_NAMES = ("a", "b", "c", "d", "default")

Make = Callable[[Choices, Document], None]
"""Changes a document in place; one that it cannot be done to stays as it is."""


def changed(choices: Choices, document: Document) -> Document:
    """Another sound document: one to three changes away, or as different as the first one has become."""
    for _ in range(TRIES):
        new = first_document() if choices.chance(HOMEWARD) else deepcopy(document)
        for _ in range(choices.weighted({1: 5, 2: 3, 3: 2})):
            choices.weighted(CHANGES)(choices, new)
        if text_of(new) == text_of(document):
            continue
        sound = fitted(choices, new)
        if sound is not None and text_of(sound) != text_of(document):
            return sound
    raise AssertionError(f"no change of this could be found:\n{text_of(document)}")


# Virtual clusters


def _add_vc(choices: Choices, document: Document) -> None:
    vcs(document).setdefault(choices.pick(VC_NAMES), {"virtualCells": []})
    _promise_more(choices, document)


def _remove_vc(choices: Choices, document: Document) -> None:
    if len(vcs(document)) > 2:
        vcs(document).pop(choices.pick(sorted(vcs(document))))


def _rename_vc(choices: Choices, document: Document) -> None:
    new = choices.pick(VC_NAMES)
    if vcs(document) and new not in vcs(document):
        vcs(document)[new] = vcs(document).pop(choices.pick(sorted(vcs(document))))


def _promise_more(choices: Choices, document: Document) -> None:
    if vcs(document):
        vc = vcs(document)[choices.pick(sorted(vcs(document)))]
        path, count = choices.pick(promises_of(document)), choices.integer(1, 3)
        for promise in vc.setdefault("virtualCells", []):
            if promise["cellType"] == path:
                promise["cellNumber"] += count
                return
        vc["virtualCells"].append({"cellType": path, "cellNumber": count})


def _promise_less(choices: Choices, document: Document) -> None:
    promises = [(vc, cell) for vc in vcs(document).values() for cell in vc.get("virtualCells", ())]
    if promises:
        vc, promise = choices.pick(promises)
        promise["cellNumber"] -= choices.integer(1, 2)
        if promise["cellNumber"] < 1:
            vc["virtualCells"].remove(promise)


def _move_promise(choices: Choices, document: Document) -> None:
    """A part of one VC's promise goes to another."""
    names = sorted(vcs(document))
    giving = [name for name in names if vcs(document)[name].get("virtualCells")]
    if giving:
        promises = vcs(document)[choices.pick(giving)]["virtualCells"]
        promise = choices.pick(promises)
        promises.remove(promise)
        vcs(document)[choices.pick(names)].setdefault("virtualCells", []).append(promise)


def _split_promise(choices: Choices, document: Document) -> None:
    """Instead of whole cells a VC gets their children."""
    promises = [cell for vc in vcs(document).values() for cell in vc.get("virtualCells", ())]
    if promises:
        promise = choices.pick(promises)
        own = promise["cellType"].split(".")[-1]
        if own in types(document):
            promise["cellType"] += "." + types(document)[own]["childCellType"]
            promise["cellNumber"] *= types(document)[own]["childCellNumber"]


def _place_by_topology(choices: Choices, document: Document) -> None:
    if vcs(document):
        vc = vcs(document)[choices.pick(sorted(vcs(document)))]
        if vc.pop("placement", None) is None:
            vc["placement"] = "topology"


def _decide_otherwise(choices: Choices, document: Document) -> None:
    """Other rules; keys that the reference's rules do not have go with the better ones."""
    if document.pop("rules", None) is None:
        document["rules"] = 2
        for vc in vcs(document).values():
            vc[choices.pick(("combine", "sparing"))] = choices.pick((True, False))
        return
    for vc in vcs(document).values():
        for key in ("combine", "sparing"):
            vc.pop(key, None)


# The rest


def _set(choices: Choices, document: Document) -> None:
    """A setting of the service."""
    key, values = choices.pick(
        (
            ("waitingPodSchedulingBlockMilliSec", (0, 1, 2)),
            ("forcePodBindThreshold", (1, 3, 10)),
            ("preemptionBy", ("service", "kube-scheduler")),
            ("evictionGraceSeconds", (1, 30)),
            ("webServerAddress", (":9096", ":9097")),
        )
    )
    document[key] = choices.pick(values)


def _read_pods_otherwise(choices: Choices, document: Document) -> None:
    """Pods of other dialects mean something else from now on."""
    document["priorityClasses"] = {"high": choices.integer(1, 100), "low": choices.pick(("preemptible", 0))}
    sku = choices.pick(sorted(document["physicalCluster"]["skuTypes"]))
    document["physicalCluster"]["skuTypes"][sku] = {"gpu": 1, "cpu": choices.integer(1, 4), "memory": "4Gi"}


CHANGES: dict[Make, int] = {
    hardware.add_tree: 10, hardware.remove_tree: 6, hardware.replace_node: 8, hardware.swap_nodes: 5,
    hardware.reorder: 4, hardware.add_chain: 4, hardware.remove_chain: 1, hardware.generate: 3,
    hardware.count_children: 6, hardware.insert_level: 3, hardware.remove_level: 2, hardware.rename_type: 4,
    hardware.pin: 4, hardware.unpin: 3,
    _add_vc: 4, _remove_vc: 2, _rename_vc: 3, _promise_more: 14, _promise_less: 7, _move_promise: 6, _split_promise: 4,
    _place_by_topology: 4, _decide_otherwise: 4, _set: 4, _read_pods_otherwise: 3,
}  # fmt: skip
