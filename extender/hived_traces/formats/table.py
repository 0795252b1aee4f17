"""All formats, in the order in which a file is tried."""

from hived_traces.formats import philly
from hived_traces.formats.format import Format

FORMATS: tuple[Format, ...] = (philly.FORMAT,)
