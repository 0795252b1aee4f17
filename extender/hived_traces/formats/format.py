"""One format: its names, how a file of it is recognised, and its reader."""

from collections.abc import Callable

import msgspec

from hived_traces.draft import Draft
from hived_traces.sources import Source


class Format(msgspec.Struct, frozen=True):
    """`name` is for commands, `title` for people.

    recognises : is a text that begins so a file of this format?
    read : adds the jobs of a source to a draft. Raises UserError if the file as a whole cannot be used
    """

    name: str
    title: str
    recognises: Callable[[str], bool]
    read: Callable[[Source, Draft], None]
