"""The configuration that a command is given: a file, or a folder of OpenPAI's."""

from dataclasses import dataclass
from pathlib import Path

import click

from hived.values.errors import UserError
from hived_config.document import ConfigError, read_text
from hived_config.loader import load_text
from hived_config.openpai import inner_text, open_configuration

FILE_NAMES = ("services-configuration.yaml", "service-configuration.yaml", "hivedscheduler.yaml")
"""The files of a folder: OpenPAI's under either of its names, or the one of `hived config pull -o`."""

PULLED = FILE_NAMES[-1]

_KEYS = frozenset(("physicalCluster", "virtualClusters"))


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration as text: `file` is how messages call it. Of an OpenPAI file it is the scheduler's part alone."""

    file: str
    text: str


def find_file(path: Path) -> Path:
    """The path, or the file to be read in this folder. Raises UserError if that is none or several."""
    if not path.is_dir():
        return path
    found = [path / name for name in FILE_NAMES if (path / name).is_file()]
    if not found:
        raise UserError(f"{_shown(path)} has no configuration: expected {' or '.join(FILE_NAMES)} in it")
    if len(found) > 1:
        both = " and ".join(each.name for each in found)
        raise UserError(f"{_shown(path)} has {both}: expected one of them; name the file that counts")
    return found[0]


def read_source(path: Path) -> Source:
    """The text of a file, or of the one in a folder. Raises UserError if there is none, or it is no configuration.

    A file without a configuration may be OpenPAI's, with passwords that nobody should see.
    """
    found = find_file(path)
    file = _shown(found)
    text = read_text(found, file)
    reader = open_configuration(text, file, lenient=True)
    if _KEYS.isdisjoint(name for name, _, _ in reader.fields(reader.root, "")):
        raise UserError(
            f"{file}: found no configuration of the scheduler, expected physicalCluster and virtualClusters, or "
            "OpenPAI's hivedscheduler.config with them"
        )
    return Source(file, inner_text(text, file))


def read_sound_source(path: Path) -> Source:
    """As `read_source`, of a configuration without mistakes. Raises ConfigError with all of them, lines of the file."""
    found = find_file(path)
    file = _shown(found)
    text = read_text(found, file)
    load_text(text, file)
    return Source(file, inner_text(text, file))


def tell_mistakes(error: ConfigError) -> None:
    """Every mistake on stderr, a line each, then how many."""
    for mistake in error.mistakes:
        click.echo(str(mistake), err=True)
    mistakes = [each for each in error.mistakes if not each.is_warning]
    file = mistakes[0].file if mistakes else "the configuration"
    click.echo(f"{file}: {len(mistakes)} mistake{'s' * (len(mistakes) != 1)}", err=True)


def _shown(path: Path) -> str:
    return click.format_filename(path)
