"""Random changes of the physical cluster: machines, racks, kinds of them, levels, names, pinned cells.

Each changes a document in place; one that it cannot be done to stays as it is.
"""

from tests.property.choices import Choices
from tests.storm.documents import (
    MOST_NODES,
    Document,
    cells,
    chains,
    nodes,
    tops,
    types,
    unused_nodes,
    vcs,
)

PINS = ("pin", "pin-1", "pin-2")


def add_tree(choices: Choices, document: Document) -> None:
    """A rack, or a machine where machines are tops."""
    top = choices.pick(chains(document))
    tree = _tree(choices, document, top)
    if tree is not None:
        tops(document).insert(choices.integer(0, len(tops(document))), tree)


def _tree(choices: Choices, document: Document, cell_type: str) -> Document | None:
    """A cell of this type with nodes that are not in use; None if there are too few."""
    wanted, at = 1, cell_type
    while not types(document)[at].get("isNodeLevel"):
        wanted *= types(document)[at]["childCellNumber"]
        at = types(document)[at]["childCellType"]
    spare = choices.shuffled(unused_nodes(document))
    if wanted > len(spare) or len(nodes(document)) + wanted > MOST_NODES:
        return None

    def build(own: str) -> Document:
        if types(document)[own].get("isNodeLevel"):
            return {"cellAddress": spare.pop()}
        below = types(document)[own]
        return {"cellChildren": [build(below["childCellType"]) for _ in range(below["childCellNumber"])]}

    return {"cellType": cell_type} | build(cell_type)


def remove_tree(choices: Choices, document: Document) -> None:
    """A rack is taken away, with what runs there."""
    if len(tops(document)) > 3:
        tops(document).remove(choices.pick(tops(document)))


def replace_node(choices: Choices, document: Document) -> None:
    """A machine is exchanged for another one, which may have been in use before."""
    if nodes(document):
        choices.pick(nodes(document)).cell["cellAddress"] = choices.pick(unused_nodes(document))


def swap_nodes(choices: Choices, document: Document) -> None:
    """Two machines change places, maybe between racks or chains."""
    found = choices.shuffled(nodes(document))
    if len(found) > 1:
        one, other = found[0].cell, found[1].cell
        one["cellAddress"], other["cellAddress"] = other["cellAddress"], one["cellAddress"]


def reorder(choices: Choices, document: Document) -> None:
    """The same top cells in another order: generated addresses are others."""
    document["physicalCluster"]["physicalCells"] = choices.shuffled(tops(document))


def add_chain(choices: Choices, document: Document) -> None:
    """Machines of a new kind."""
    number = choices.integer(0, 5)
    node, top = f"KIND{number}", f"ROW{number}"
    if node in types(document) or top in types(document):
        return
    leaf = choices.pick(("GPU", "T4", "A10", "H100"))
    types(document)[node] = {"childCellType": leaf, "childCellNumber": choices.integer(1, 4), "isNodeLevel": True}
    types(document)[top] = {"childCellType": node, "childCellNumber": choices.integer(1, 3)}
    tree = _tree(choices, document, choices.pick((top, node)))
    if tree is not None:
        tops(document).append(tree)


def remove_chain(choices: Choices, document: Document) -> None:
    """All machines of a kind are taken away."""
    if len(chains(document)) > 2:
        top = choices.pick(chains(document))
        tops(document)[:] = [cell for cell in tops(document) if cell["cellType"] != top]


def generate(choices: Choices, document: Document) -> None:
    """A tree whose nodes have generated names, or one with names instead."""
    tree = choices.pick(tops(document))
    if "cellChildren" in tree:
        tree.pop("cellChildren")
        tree.pop("cellAddress", None)
    else:
        named = _tree(choices, document, tree["cellType"])
        if named is not None:
            tree |= named


def count_children(choices: Choices, document: Document) -> None:
    """More or fewer machines in a rack, or devices in a machine."""
    name = choices.pick(sorted(types(document)))
    count = types(document)[name]["childCellNumber"] = choices.integer(1, 4)
    spare = choices.shuffled(unused_nodes(document))
    for found in [each for each in cells(document) if each.cell_type == name and "cellChildren" in each.cell]:
        children = found.cell["cellChildren"]
        del children[count:]
        while len(children) < count and spare:
            children.append({"cellAddress": spare.pop()})


def insert_level(choices: Choices, document: Document) -> None:
    """Devices of a machine are grouped, as by a socket."""
    inside = [name for name, each in types(document).items() if each.get("isNodeLevel")]
    name = choices.pick(sorted(inside))
    of, group = types(document)[name], f"{name}-HALF"
    if of["childCellNumber"] % 2 or group in types(document):
        return
    child = of["childCellType"]
    types(document)[group] = {"childCellType": child, "childCellNumber": of["childCellNumber"] // 2}
    of |= {"childCellType": group, "childCellNumber": 2}
    _rewrite_paths(document, f"{name}.{child}", f"{name}.{group}.{child}")


def remove_level(_choices: Choices, document: Document) -> None:
    """The same as before `insert_level`."""
    for name in sorted(types(document)):
        group = types(document)[name]["childCellType"]
        if group == f"{name}-HALF":
            gone = types(document).pop(group)
            types(document)[name] |= {
                "childCellType": gone["childCellType"],
                "childCellNumber": 2 * gone["childCellNumber"],
            }
            _rewrite_paths(document, f"{name}.{group}.", f"{name}.")
            return


def rename_type(choices: Choices, document: Document) -> None:
    """A type, a chain's top or a leaf type among them, gets another name everywhere."""
    physical = document["physicalCluster"]
    leaves = {each["childCellType"] for each in types(document).values()} - types(document).keys()
    old = choices.pick(sorted({*types(document), *leaves}))
    new = old[:-2] if old.endswith("-X") else f"{old}-X"
    if new in types(document) or new in leaves:
        return
    physical["cellTypes"] = {
        new if name == old else name: each
        | {"childCellType": new if each["childCellType"] == old else each["childCellType"]}
        for name, each in types(document).items()
    }
    physical["skuTypes"] = {new if name == old else name: sku for name, sku in physical.get("skuTypes", {}).items()}
    for cell in tops(document):
        cell["cellType"] = new if cell["cellType"] == old else cell["cellType"]
    for vc in vcs(document).values():
        for promise in vc.get("virtualCells", ()):
            parts = promise["cellType"].split(".")
            promise["cellType"] = ".".join(new if part == old else part for part in parts)


def _rewrite_paths(document: Document, old: str, new: str) -> None:
    for vc in vcs(document).values():
        for promise in vc.get("virtualCells", ()):
            promise["cellType"] = f"{promise['cellType']}.".replace(old, new).removesuffix(".")


def pin(choices: Choices, document: Document) -> None:
    """A cell becomes some VC's own."""
    used = {found.cell["pinnedCellId"] for found in cells(document) if "pinnedCellId" in found.cell}
    free = [pin for pin in PINS if pin not in used]
    found = [each.cell for each in cells(document) if "pinnedCellId" not in each.cell]
    if free and found and vcs(document):
        choices.pick(found)["pinnedCellId"] = free[0]
        owner = vcs(document)[choices.pick(sorted(vcs(document)))]
        owner.setdefault("pinnedCells", []).append({"pinnedCellId": free[0]})


def unpin(choices: Choices, document: Document) -> None:
    """A pinned cell is like any other again."""
    pinned = [each.cell for each in cells(document) if "pinnedCellId" in each.cell]
    if pinned:
        choices.pick(pinned).pop("pinnedCellId")
