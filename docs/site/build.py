"""Build the documentation's site into out/docs, as `make docs` does; a link or an anchor that leads nowhere ends it.

Pages link to files of the checkout as well, such as examples. So these are part of the site: pages as pages, all else
as a page that shows the file. Links are written anew for their places there, and nothing else of a page is changed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from docs.site.pages import ROOT, Page, broken_links, pages

SITE = ROOT / "docs" / "site"
OUT = ROOT / "out"
SOURCE = OUT / "docs-source"
TARGET = OUT / "docs"
INDEX = "docs/index.md"
PICTURES = {".svg", ".png"}
"""Suffixes of files that stand in the site as they are."""

_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".py": "python", ".toml": "toml"}


def main() -> int:
    """Build the site. Returns the exit code, after having said what is wrong."""
    staged = stage()
    if wrong := broken_links([page for page in staged if page.path.endswith(".md")]):
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    zensical = Path(sys.executable).with_name("zensical")
    config = OUT / "zensical.toml"  # a site lies below its configuration
    shutil.copy(SITE / "zensical.toml", config)
    command = [str(zensical), "build", "--strict", "--clean", "--config-file", str(config)]
    return subprocess.run(command, check=False).returncode


def stage() -> list[Page]:
    """Write all pages, and every file that they lead to, into out/docs-source; returns them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    found: dict[str, Page] = {page.path: page for page in pages()}
    todo = list(found.values())
    while todo:
        page = todo.pop()
        targets: dict[str, str] = {}
        for path, target in _files(page):
            if path not in found:
                found[path] = Page(path)
                todo.append(found[path])
            anchor = target.partition("#")[2]
            targets[target] = _relative(page.path, path) + (f"#{anchor}" if anchor else "")
        _write(page, targets)
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(SITE / name, SOURCE / name)
    return list(found.values())


def place_of(path: str) -> str:
    """Where a file of the checkout stands in the site, as the path of a page: docs/ at the top, all else below it."""
    if path == INDEX or path.startswith("docs/"):
        return path.removeprefix("docs/")
    if PurePosixPath(path).suffix in PICTURES:
        return f"repository/{path}"
    return f"repository/{path}" + ("" if path.endswith(".md") else ".md")


def _files(page: Page) -> list[tuple[str, str]]:
    """(file, target of the link) for every link of a page that leads to a file of the checkout."""
    if not page.path.endswith(".md"):
        return []
    found = []
    for link in page.links:
        if not link.is_external and not link.target.startswith("#"):
            path = page.resolve(link.target)[0]
            if (ROOT / path / "README.md").is_file():
                path = f"{path}/README.md"
            if (ROOT / path).exists():
                found.append((path, link.target))
    return found


def _relative(source: str, target: str) -> str:
    return Path(os.path.relpath(place_of(target), PurePosixPath(place_of(source)).parent)).as_posix()


def _write(page: Page, targets: dict[str, str]) -> None:
    place = SOURCE / place_of(page.path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if PurePosixPath(page.path).suffix in PICTURES:
        shutil.copy(ROOT / page.path, place)
    elif page.path.endswith(".md"):
        place.write_text(page.with_targets(targets), encoding="utf-8")
    elif (ROOT / page.path).is_dir():
        names = [path.name + "/" * path.is_dir() for path in sorted((ROOT / page.path).iterdir())]
        place.write_text(f"# {page.path}\n\n" + "".join(f"- `{name}`\n" for name in names), encoding="utf-8")
    else:
        language = _LANGUAGES.get(PurePosixPath(page.path).suffix, "text")
        place.write_text(f"# {page.path}\n\n````{language}\n{page.text.rstrip()}\n````\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
