"""Packages that are imported where they are used, and that a demo does without: what is told where one is missing."""

from hived.values.errors import UserError

LATE = {
    "certifi": "kubernetes", "cryptography": "cryptography", "kubernetes": "kubernetes", "llvmlite": "numba",
    "numba": "numba",
}  # fmt: skip
"""The package that is to be installed for a module; it brings the others along."""


class NotInstalledError(UserError):
    """Something needs a package that is not there, as after `make demo` alone."""


def missing(error: ModuleNotFoundError) -> NotInstalledError | None:
    """Return the error for a package that is not installed; None if a part of hived itself is missing."""
    package = LATE.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return NotInstalledError(
        f"the package {package} is not installed, and this needs it: make setup in a checkout, or pip install {package}"
    )
