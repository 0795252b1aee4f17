"""The files of pages that never change while the service runs: read once, with a digest in their paths."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file: its bytes as they are and compressed, its media type, and a digest."""

    body: bytes
    compressed: bytes
    content_type: str
    digest: str


class Assets:
    """All files in a folder, by their paths in it; read when the first is asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> dict[str, Asset]:
        """Every file."""
        found = {}
        for path in sorted(self._folder.rglob("*")):
            if path.suffix in TYPES:
                body = path.read_bytes()
                digest = hashlib.blake2b(body, digest_size=8).hexdigest()
                name = path.relative_to(self._folder).as_posix()
                found[name] = Asset(body, gzip.compress(body, mtime=0), TYPES[path.suffix], digest)
        return found

    def path(self, name: str) -> str:
        """The path of a file, another one for other bytes, so that browsers may keep it."""
        return f"/page/static/{name}?v={self.files[name].digest}"


ASSETS = Assets()
