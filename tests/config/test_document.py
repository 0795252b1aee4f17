"""Files that are not YAML, not text, or made to exhaust the machine."""

import gc
import io
from pathlib import Path

import pytest

from hived_config.document import (
    MAX_ALIASED_NODES,
    MAX_FILE_BYTES,
    MAX_NESTING,
    ConfigError,
    compose,
    compose_all,
    gc_paused,
    read_stream,
)
from hived_config.loader import load
from tests.config.sound_file import SOUND, mistakes_of


def mistake_in(content: bytes, folder: Path) -> str:
    """The one mistake in a file with this content, without the name of the file."""
    path = folder / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    (mistake,) = caught.value.mistakes
    return str(mistake).removeprefix(str(path))


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml")
    expected = f"{tmp_path}/none.yaml: found no readable file (No such file or directory), expected a YAML file"
    assert caught.value.message == expected


def test_a_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no readable file \(Is a directory\)"):
        load(tmp_path)


def test_a_name_that_no_file_can_have_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no readable file"):
        load("a\0b")


def test_text_that_is_not_utf_8_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    found = mistake_in("# fine\n# fine\nname: Zoë\n".encode("latin-1"), tmp_path)
    assert found == ":3: found byte 0xeb, which is not UTF-8, expected UTF-8 text"


def test_utf_16_is_a_mistake(tmp_path: Path) -> None:
    assert mistake_in("a: b".encode("utf-16"), tmp_path).startswith(":1: found byte 0xff, which is not UTF-8")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(SOUND.encode("utf-8-sig"))
    assert load(path).cluster.physical_cells


def test_a_file_that_is_far_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match=f"more than {MAX_FILE_BYTES} bytes"):
        load(path)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_an_empty_document_is_a_mistake(text: str) -> None:
    assert mistakes_of(text) == ["f: found an empty document, expected a scheduler configuration"]


def test_an_absent_document_is_a_mistake() -> None:
    assert mistakes_of("~") == ["f:1: found nothing, expected a scheduler configuration (a mapping)"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a: [", "f:2: found text that is not YAML (did not find expected node content), expected YAML"),
        ("a: b: c", "f:1: found text that is not YAML (mapping values are not allowed in this context), expected YAML"),
        ("\ta: b", "f:1: found a tab, expected spaces: YAML takes no tabs before the text of a line"),
        ("a:\n  b: 1\n \tc: 2", "f:3: found a tab, expected spaces: YAML takes no tabs before the text of a line"),
        ("a: *b", "f:1: found text that is not YAML (found undefined alias), expected YAML"),
        ("é: 1\nb: \x07", "f:2: found the character U+0007, expected printable text"),
        ("a: b\n---\nc: d", "f:2: found a second document, expected a single document"),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(text: str, mistake: str) -> None:
    assert mistakes_of(text) == [mistake]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_bottomless_nesting_is_refused(opening: str) -> None:
    (mistake,) = mistakes_of(opening * 100_000)
    assert mistake.startswith(f"f:1: found text that is not YAML (nesting deeper than {MAX_NESTING} levels)")


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert mistakes_of("a: &x\n  b: [*x]") == ["f:1: found an alias that contains itself, expected a tree"]


def test_aliases_that_multiply_are_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)]
    (mistake,) = mistakes_of("\n".join(lines))
    assert "found aliases that expand to" in mistake
    assert f"expected at most {MAX_ALIASED_NODES} more than written" in mistake


def test_merges_that_multiply_are_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 {x: y}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 60)]
    assert "found aliases that expand to" in mistakes_of("\n".join(lines))[0]


def test_a_long_chain_of_aliases_is_refused_like_deep_nesting() -> None:
    lines = ["a0: &a0 {cellType: X}"] + [f"a{i}: &a{i} {{cellChildren: [*a{i - 1}]}}" for i in range(1, 600)]
    assert f"expected at most {MAX_NESTING} levels" in mistakes_of("\n".join(lines))[0]


def test_lines_count_from_the_outer_file() -> None:
    with pytest.raises(ConfigError, match=r"^f:12: "):
        compose("a: b\n---\n", "f", first_line=10)


def test_every_document_of_a_text_is_composed() -> None:
    roots = compose_all("a: b\n---\n- c\n---\n", "f")
    assert [root.start_mark.line for root in roots] == [0, 2, 4]
    assert compose_all("# nothing\n", "f") == []


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a\n--- [", "f:13: found text that is not YAML"),
        ("a\n---\nb: &x\n  c: [*x]", "f:13: found an alias that contains itself"),
        ("&a a\n--- *a", "f:12: found text that is not YAML (found undefined alias)"),
    ],
)
def test_a_mistake_in_any_document_of_a_text_has_its_line(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_all(text, "f", first_line=10)
    assert caught.value.message.startswith(mistake)


def test_a_stream_is_bounded_and_in_utf_8() -> None:
    assert read_stream(io.BytesIO(b"\xef\xbb\xbfa: \xc3\xa9"), "f") == "a: é"
    with pytest.raises(ConfigError, match="f:2: found byte 0xff"):
        read_stream(io.BytesIO(b"a\n\xff"), "f")
    with pytest.raises(ConfigError, match=f"f: found more than {MAX_FILE_BYTES} bytes"):
        read_stream(io.BytesIO(bytes(MAX_FILE_BYTES + 1)), "f")


def test_the_garbage_collector_is_left_as_it_was() -> None:
    with gc_paused(), gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
