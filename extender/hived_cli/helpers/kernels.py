"""The kernels that the environment asks for."""

from collections.abc import Mapping

from hived.errors import UserError
from hived.linked import VARIABLE, Way

VARIANTS = ("avx512", "avx2", "baseline")
"""All that a library may have; the one of this machine need not have each."""


def check_wanted(environ: Mapping[str, str]) -> None:
    """Raise UserError if the environment asks for kernels that there are nowhere: others would run in silence."""
    wanted, known = environ.get(VARIABLE, ""), [*VARIANTS, *(way.value for way in Way)]
    if wanted and wanted not in known:
        raise UserError(f"{VARIABLE}={wanted}: expected {', '.join(known[:-1])} or {known[-1]}")
