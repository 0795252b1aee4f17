"""The inputs of a plan: from a service, or from a file."""

from pathlib import Path

import msgspec

from hived.errors import UserError
from hived_extender.api.defrag import Inputs
from hived_extender.api.paths import INPUTS_PATH
from hived_extender.client.inspection import Inspector

INPUTS_TIMEOUT_S = 120.0


def read_inputs(inspector: Inspector, file: Path | None) -> Inputs:
    """The inputs in `file`, else those of the service. Raises UserError that says where the mistake is."""
    if file is None:
        _, answer = inspector.ask(INPUTS_PATH, timeout_s=INPUTS_TIMEOUT_S)
        return inspector.decode(INPUTS_PATH, Inputs, answer)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Inputs)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UserError(
            f"{file}: {error}; expected the JSON of GET {INPUTS_PATH}, which `hived defrag inputs` prints"
        ) from error
