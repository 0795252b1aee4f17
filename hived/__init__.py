"""The scheduler core: events in, decisions out, state in dense arrays. No I/O, clock, log, thread or global."""

__version__ = "0.1.0"
