"""The records of a trace: decisions, and changes (rule 16.2). Equal records are equal bytes."""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from hived.values.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.specs import BindInfo

Json: TypeAlias = dict[str, Any]

_encoder = msgspec.json.Encoder(order="sorted")


def encode_record(record: Json) -> bytes:
    """One line of a trace; keys are sorted, so equal records are equal bytes."""
    return _encoder.encode(record) + b"\n"


def error_result(error: UserError) -> Json:
    """A refusal as a record shows it; every refusal of an operation counts as a bad request."""
    return {"kind": "error", "code": 400, "message": error.message}


def decision_result(decision: Decision) -> Json:
    """The part of a record that tells the decision."""
    match decision:
        case Bind():
            return {"kind": "bind", "bind": bind_json(decision.bind_info)}
        case Preempt():
            by_node = {node: sorted(victims) for node, victims in decision.victims_by_node.items()}
            node = min(by_node)
            found = {"kind": "preempt", "victimsByNode": by_node, "node": node, "victims": by_node[node]}
            return found | {"gaveUp": True} if decision.gave_up else found
        case Wait():
            return {"kind": "wait", "reason": decision.reason}
        case Applied():
            raise InvariantError("a request to schedule was answered as a fact")


def bind_json(info: BindInfo) -> Json:
    """A bind info in the words of its annotation."""
    return {
        "node": info.node,
        "leafCellIsolation": info.leaf_cell_indices,
        "cellChain": info.cell_chain,
        "affinityGroupBindInfo": [
            {
                "podPlacements": [
                    {
                        "physicalNode": placement.node,
                        "physicalLeafCellIndices": placement.leaf_cell_indices,
                        "preassignedCellTypes": placement.preassigned_cell_types,
                    }
                    for placement in member
                ]
            }
            for member in info.members
        ],
    }


def hash_map(entries: Mapping[str, Any]) -> str:
    """The first 16 hex digits of sha256 over the map's JSON, keys sorted, without spaces."""
    return hashlib.sha256(_encoder.encode(entries)).hexdigest()[:16]


def diff_maps(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Entries that are new or changed, and None for entries that are gone."""
    changed: Json = {key: value for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}
