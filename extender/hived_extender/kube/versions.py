"""Which of two versions of an object is the older one."""

import re

_VERSION = re.compile(r"[0-9]+")


def is_older(version: str, known: str) -> bool:
    """Is the one resourceVersion from before the other? They are numbers that grow, of any length; other text, such as
    "", is of no age.
    """
    if not (_VERSION.fullmatch(version) and _VERSION.fullmatch(known)):
        return False
    digits, others = version.lstrip("0"), known.lstrip("0")
    return (len(digits), digits) < (len(others), others)
