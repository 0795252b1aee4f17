"""The option `--jobs` of measurements: how many processes take part."""

import argparse


def process_count(text: str) -> int:
    """The number of processes that an option names. Raises ArgumentTypeError unless it is 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: expected 1 or more")
    return int(text)
