"""Where a new group could go: which chains to try, then placement in the VC and mapping (SEMANTICS 4.3-4.5)."""

import numpy as np
import numpy.typing as npt

from hived.chains import check_request, views_to_try
from hived.decisions import Wait
from hived.fitting import Placement, Request
from hived.near import fit_near
from hived.specs import PodRequest
from hived.state import State

_MOST = 2**31 - 1  # counts saturate here; no cluster has as many leaves (FORMAT C5)


def search(state: State, pod: PodRequest, suggested: npt.NDArray[np.bool_] | None) -> Placement | Wait:
    """Find cells for a new group; runs while the journal records, the caller undoes what it keeps no use for.

    Raises UserError for a request that this cluster can never meet (SEMANTICS 4.3).
    """
    check_request(state, pod)
    spec, members = pod.spec, pod.spec.group.members
    # a copy, because a read-only or strided mask would make numba compile the kernels once more
    mask = np.ones(0, np.bool_) if suggested is None else np.array(suggested, np.bool_)
    request = Request(
        pod,
        np.array([min(m.leaf_cell_count, _MOST) for m in members], np.int32),
        np.array([min(m.pod_count, _MOST) for m in members], np.int64),
        sum(m.leaf_cell_count * m.pod_count for m in members),
        mask,
        spec.ignore_suggested_nodes or bool(mask.all()),
    )
    reason = ""
    for views in views_to_try(state, spec):
        last = ""
        for view in views:
            found = fit_near(state, request, view)
            if isinstance(found, Placement):
                return found
            last = found.reason or last
        reason = last or reason
    return Wait(reason)
