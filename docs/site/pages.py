"""The pages of the documentation as their readers see them: headings, links and blocks of code.

The site, the check of links and the tests of commands and YAML read pages with this module, so that they agree on the
contents of a page. It knows the part of CommonMark that the pages use.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

_FENCE = re.compile(r"(?P<indent> *)```(?P<language>[\w-]*)(?: +title=\"(?P<title>[^\"]+)\")? *$")
_MARK = re.compile(r" *<!-- not run: (?P<reason>.+?) -->$")
_ITEM = re.compile(r"(?P<bullet> *(?:[-*]|\d+\.) +)\S")
_HEADING = re.compile(r"#{1,6} +(?P<text>.+?) *$")
_ANCHOR = re.compile(r"<a id=\"(?P<id>[^\"]+)\">")
_TEXT = r"(?:[^\[\]\n]|\n(?!\n))*"
_LINK = re.compile(rf"(?P<before>!?\[(?:{_TEXT}|\[{_TEXT}\])*\]\()(?P<target>[^)\s]+)(?P<after>\))")
_SPAN = re.compile(r"(`+)(?P<text>(?:[^`\n]|\n(?!\n))+?)\1")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: between fences, or indented by four.

    `line` is that of its first line of code, counted from 1. `title` names the file that it shows. `mark` is the reason
    why its commands are not run, from the comment `<!-- not run: ... -->` before it.
    """

    page: str
    line: int
    language: str
    title: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page, with the line that it stands in."""

    line: int
    target: str

    @property
    def is_external(self) -> bool:
        """Whether it leads out of the checkout."""
        return re.match(r"[a-z]+:", self.target) is not None


@dataclass(frozen=True)
class Page:
    """A page by its path below the checkout."""

    path: str

    @cached_property
    def text(self) -> str:
        """The page as it is written."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Its blocks of code, in order."""
        return tuple(self._blocks())

    @cached_property
    def prose(self) -> tuple[str, ...]:
        """Its lines, those of blocks of code empty."""
        lines = self.text.splitlines()
        for block in self.blocks:
            count = block.text.count("\n")
            lines[block.line - 1 : block.line - 1 + count] = [""] * count
        return tuple("" if _FENCE.match(line) else line for line in lines)

    @property
    def links(self) -> Iterator[Link]:
        """Its links, other than those in code; one may go over the end of a line."""
        text = _SPAN.sub(lambda span: re.sub(r"[^\n]", "`", span[0]), "\n".join(self.prose))
        for found in _LINK.finditer(text):
            yield Link(text.count("\n", 0, found.start("target")) + 1, found["target"])

    @property
    def spans(self) -> Iterator[str]:
        """Its pieces of code within sentences; one may go over the end of a line."""
        for paragraph in re.split(r"\n\n|\n(?=\|)", "\n".join(self.prose)):
            yield from (" ".join(span["text"].split()) for span in _SPAN.finditer(paragraph))

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Names that links to a place on this page may have after the `#`."""
        found: list[str] = []
        for line in self.prose:
            if heading := _HEADING.match(line):
                slug = slug_of(heading["text"])
                found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
            found += [anchor["id"] for anchor in _ANCHOR.finditer(line)]
        return frozenset(found)

    def resolve(self, target: str) -> tuple[str, str]:
        """(path below the checkout, anchor) that a link of this page leads to."""
        path, _, anchor = target.partition("#")
        if not path:
            return self.path, anchor
        folder = ROOT / PurePosixPath(self.path).parent
        return (folder / path).resolve().relative_to(ROOT).as_posix(), anchor

    def with_targets(self, targets: dict[str, str]) -> str:
        """The page with some targets of links replaced."""
        lines = self.text.splitlines()
        for link in self.links:
            if link.target in targets:
                line = lines[link.line - 1]
                lines[link.line - 1] = line.replace(f"]({link.target})", f"]({targets[link.target]})")
        return "\n".join(lines) + "\n"

    def _blocks(self) -> Iterator[Block]:
        lines = self.text.splitlines()
        number, indent, mark = 0, 0, ""
        is_after_blank = True
        while number < len(lines):
            line = lines[number]
            if fence := _FENCE.match(line):
                end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == "```")
                code = [each.removeprefix(fence["indent"]) for each in lines[number + 1 : end]]
                yield Block(self.path, number + 2, fence["language"], fence["title"] or "", mark, _joined(code))
                number, mark, is_after_blank = end + 1, "", True
                continue
            if is_after_blank and line.startswith(" " * (indent + 4)):
                end = self._end_of_indented(lines, number, indent + 4)
                code = [each[_width(line) :] for each in lines[number:end]]
                yield Block(self.path, number + 1, "", "", mark, _joined(code))
                number, mark, is_after_blank = end, "", False
                continue
            if item := _ITEM.match(line):
                indent = len(item["bullet"])
            elif line and is_after_blank and not line.startswith(" " * indent):
                indent = 0
            if found := _MARK.match(line):
                mark = found["reason"]
            elif line:
                mark = ""
            is_after_blank = not line or found is not None
            number += 1

    @staticmethod
    def _end_of_indented(lines: list[str], start: int, indent: int) -> int:
        end = start
        for number in range(start, len(lines)):
            if lines[number].startswith(" " * indent):
                end = number + 1
            elif lines[number]:
                break
        return end


def slug_of(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def pages() -> list[Page]:
    """README.md and every page of docs/, sorted by name."""
    return [Page("README.md"), *(Page(f"docs/{path.name}") for path in sorted((ROOT / "docs").glob("*.md")))]


def broken_links(found: list[Page]) -> list[str]:
    """Links of some pages that lead nowhere, each with its place and the reason. Addresses elsewhere are not asked."""
    wrong = []
    for page in found:
        for link in page.links:
            if link.is_external:
                continue
            path, anchor = page.resolve(link.target)
            if not (ROOT / path).exists():
                wrong.append(f"{page.path}:{link.line}: {link.target}: there is no {path}")
            elif anchor and not path.endswith(".md"):
                wrong.append(f"{page.path}:{link.line}: {link.target}: {path} is no page, and has no anchors")
            elif anchor and anchor not in Page(path).anchors:
                wrong.append(f"{page.path}:{link.line}: {link.target}: {path} has no such anchor")
    return wrong


def _width(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
