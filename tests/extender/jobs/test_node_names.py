"""Masks of node lists: whatever the bytes are, what msgspec and a dict make of them."""

import json
import random
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.kernels import jit
from hived.kernels.jit import ENTRY_KERNELS, IS_INTERPRETED, EntryKernel
from hived.kernels.jit import is_plain as is_plain_now
from hived.values.errors import UserError
from hived_extender import warm
from hived_extender.jobs import node_names
from hived_extender.jobs.node_names import NO_NODE, Mask, NodeNames, enter_names, mark_names
from tests.property.examples import examples

CONFIGURED = (
    "a", "b", "c", "node-1", "node-10", "node-100", "node-1.rack-7", "seven77", "eight888", "nine99999", "x" * 15,
    "x" * 16, "x" * 17, "x" * 300, "", " ", "ü", "Ω-node", 'quo"te', "back\\slash", "tab\there", "nul\0", "nul",
    "del\x7f", "\ud800", "[]", "a,b", "null",
)  # fmt: skip
INDEX = {name: index for index, name in enumerate(CONFIGURED)}
PIECES = (
    b"", b",", b'"', b"]", b"[", b"\\", b"\\u0061", b"\0", b"\x1f", b"\x7f", b"\x80", b"\xff", b"null", b"1", b"{}"
)  # fmt: skip
COUNT = 300 if IS_INTERPRETED else 3000
"""Kernels as plain Python take 3 ms a name."""

LARGE = tuple(f"gpu-pool-{i // 256}-node-{i % 256:03}.cluster.internal" for i in range(COUNT))


@pytest.fixture(autouse=True, scope="module")
def kernel_in_use() -> Iterator[None]:
    """The kernel is tested as plain Python, too, which the service does without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_names, "is_plain", lambda _: False)
        yield


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def expected(data: bytes) -> list[bool] | str:
    """The plain way: a mask, or the beginning of the error."""
    try:
        names = set(msgspec.json.decode(data, type=list[str]))
    except (ValueError, RecursionError):
        return "NodeNames must be a list of node names: "
    return [name in names for name in CONFIGURED]


def answered(data: bytes, names: NodeNames | None = None) -> list[bool] | str:
    try:
        mask = (names or NodeNames(INDEX)).mask(msgspec.Raw(data))
    except UserError as error:
        return error.message[: len("NodeNames must be a list of node names: ")]
    return [True] * len(CONFIGURED) if mask is None else mask.tolist()


def is_plain(data: bytes, names: NodeNames | None = None, beyond: bytes = b"") -> bool:
    """Whether the kernel understands a text; `beyond` follows it in memory."""
    names = names or NodeNames(INDEX)
    text = np.frombuffer(data + beyond, np.uint8)[: len(data)]
    mask = np.zeros(len(names._first) - 1, np.bool_)
    return bool(mark_names(text, names._words, names._first, names._slots, mask))


def escaped(name: str) -> str:
    return json.dumps(name)


def unescaped(name: str) -> str:
    """As Go and most others write it; where that is impossible, broken."""
    return f'"{name}"'


spaces = st.text(" \t\r\n", max_size=9) | st.just("")
name_texts = st.builds(
    lambda write, name: write(name),
    st.sampled_from([escaped, unescaped]),
    st.sampled_from(CONFIGURED)
    | st.sampled_from(CONFIGURED).map(lambda name: name[:-1])
    | st.sampled_from(CONFIGURED).map(lambda name: name + "x")
    | st.text(max_size=20)
    | st.integers(0, 400).map("x".__mul__),
)


@st.composite
def list_texts(draw: st.DrawFn) -> bytes:
    """Lists of names with spaces about, mostly well-formed."""
    names = draw(st.lists(name_texts | st.just('"node-1"'), max_size=30))
    separators = [draw(spaces) + "," + draw(spaces) for _ in names[1:]] + [""]
    middle = "".join(map(str.__add__, names, separators))
    text = f"{draw(spaces)}[{draw(spaces)}{middle}{draw(spaces)}]{draw(spaces)}"
    return text.encode("utf-8", "surrogatepass")


@st.composite
def broken_texts(draw: st.DrawFn) -> bytes:
    """Lists that end early, or with a piece put in the place of another."""
    text = draw(list_texts())
    begin = draw(st.integers(0, len(text)))
    end = draw(st.just(len(text)) | st.integers(begin, len(text)))
    return text[:begin] + draw(st.sampled_from(PIECES) | st.binary(max_size=3)) + text[end:]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(CONFIGURED[:-5]),
    lambda values: st.lists(values) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=9,
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=examples(400))
@given(list_texts() | broken_texts() | json_values | st.binary(max_size=40))
def test_any_bytes_give_what_the_plain_way_gives(data: bytes) -> None:
    assert answered(data) == expected(data)


@given(list_texts() | broken_texts(), st.sampled_from([b"", b'"]', b"]", b" ]", b"a", b'a"]', b',"a"]', b" " * 20]))
def test_what_follows_a_text_in_memory_is_not_read(data: bytes, beyond: bytes) -> None:
    assert is_plain(data, beyond=beyond) == is_plain(data)


@given(st.lists(st.text(st.characters(min_codepoint=0, max_codepoint=0x7F), max_size=20), unique=True, max_size=9))
def test_no_two_names_are_taken_for_each_other(names: list[str]) -> None:
    plain = [name for name in names if escaped(name) == unescaped(name)]
    node_names = NodeNames({name: index for index, name in enumerate([*names, "another"])})
    for name in plain:
        mask = node_names.mask(raw([name]))
        assert mask is not None
        assert [each for each, is_marked in zip(names, mask, strict=False) if is_marked] == [name]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_lists_in_any_order_are_plain(separators: tuple[str, str]) -> None:
    source = random.Random(7)
    names = NodeNames({name: index for index, name in enumerate(LARGE)})
    lists: list[Sequence[str]] = [LARGE, LARGE[::-1], source.sample(LARGE, len(LARGE)), source.sample(LARGE, 9)]
    lists += [LARGE[i:] + LARGE[:i] for i in (1, COUNT // 3, COUNT - 1)]
    lists += [LARGE[1:], LARGE[::2] + LARGE[::2], [name[:-1] for name in LARGE], (*LARGE[5:], "stranger")]
    for listed in lists:
        data = json.dumps(listed, separators=separators).encode()
        assert is_plain(data, names)
        mask = names.mask(msgspec.Raw(data))
        present = set(listed)
        assert (np.ones(len(LARGE), bool) if mask is None else mask).tolist() == [name in present for name in LARGE]


@pytest.mark.parametrize(
    "data", [b"[]", b" [ ] ", b'["a"]', b'\t["a"\r,\n"b"] ', b'["", "a b", "~!#[]^_`"]', b'["\x7f"]']
)
def test_lists_of_plain_names_need_no_msgspec(data: bytes) -> None:
    assert is_plain(data)
    assert answered(data) == expected(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[", b"[]]", b"[] x", b'["a"', b'["a', b'["a",', b'["a",]', b'["a"]x', b'["a"]]', b'["a""b"]',
        b'["a" "b"]', b'["a":"b"]', b'["a"x"b"]', b'[a]', b'[1]', b'["\\u0061"]', b'["\\""]', '["ü"]'.encode(),
        b'["\xff"]', b'["\0"]', b'["a\tb"]', b'["\x1f"]', b'\x0b["a"]', b'["a"]\0',
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_msgspec(data: bytes) -> None:
    assert not is_plain(data)
    assert answered(data) == expected(data)


@pytest.mark.parametrize(
    "form", ["n{}", "{}", "gpu-node-{:05}", "{:05}-gpu-node", "ip-10-0-{}.eu-central-1.compute.internal", "n{:016x}z"]
)
def test_names_that_differ_a_little_are_spread_over_the_table(form: str) -> None:
    names = NodeNames({form.format(i): i for i in range(4096)})
    is_free = names._slots == NO_NODE
    runs = np.diff(np.flatnonzero(is_free))
    assert np.count_nonzero(~is_free) == 4096
    assert runs.max() < 40


def test_a_mask_marks_the_configured_nodes_and_ignores_others() -> None:
    names = NodeNames({"a": 0, "b": 1, "c": 2})
    mask = names.mask(raw(["c", "stranger", "a"]))
    assert mask is not None
    assert mask.tolist() == [True, False, True]


@pytest.mark.parametrize("stranger", ["stranger", "sträng\n"])
def test_all_configured_nodes_need_no_mask(stranger: str) -> None:
    names = NodeNames({"a": 0, "b": 1, "c": 2})
    assert names.mask(raw(["c", stranger, "a", "b"])) is None


def test_names_that_are_decoded_give_the_same_mask() -> None:
    names = NodeNames({"a": 0, "b": 1})
    masks: list[Mask | None] = [names.mask(raw(["b", "x"])), names.mask_of(["b", "x"])]
    assert [mask is not None and mask.tolist() for mask in masks] == [[False, True]] * 2
    assert names.mask_of(["b", "a"]) is None


def test_a_list_seen_lately_gives_the_same_mask_even_when_another_came_between() -> None:
    names = NodeNames({"a": 0, "b": 1})
    first = names.mask(raw(["a"]))
    names.mask(raw(["b"]))
    assert names.mask(raw(["a"])) is first


@pytest.mark.parametrize("name", ["a", "\u0061\u0301"])
def test_a_mask_has_the_type_for_which_kernels_are_compiled(name: str) -> None:
    mask = NodeNames({"a": 0, "b": 1}).mask(raw([name]))
    assert mask is not None
    assert (mask.flags.writeable, mask.flags.c_contiguous, mask.dtype) == (True, True, np.bool_)


@pytest.mark.parametrize("value", [None, "a", [1], {"a": 1}, [["a"]], ["a", None]])
def test_node_names_that_are_no_list_of_text_are_the_callers_error(value: object) -> None:
    with pytest.raises(UserError, match="NodeNames must be a list of node names"):
        NodeNames(INDEX).mask(raw(value))


def test_missing_node_names_point_to_the_setting_that_is_wrong() -> None:
    with pytest.raises(UserError, match="nodeCacheCapable: true"):
        NodeNames(INDEX).mask(raw(None))


def test_without_configured_nodes_every_list_has_all_of_them() -> None:
    assert NodeNames({}).mask(raw(["a"])) is None


@pytest.mark.parametrize("data", [b'["a", "node-1"]', b'["\\u0061"]', b"[]"])
def test_a_plain_kernel_reads_no_list(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one would take it a second, in which no health probe is answered."""

    def refuse(*_: object) -> bool:
        raise AssertionError("the plain kernel was called")

    monkeypatch.setattr(node_names, "is_plain", is_plain_now)
    monkeypatch.setattr(node_names, "mark_names", EntryKernel(refuse))
    assert answered(data) == expected(data)


def test_the_kernel_reads_lists_as_soon_as_it_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    entry = EntryKernel(lambda *_: False)
    entry.target = lambda *_: called.append(1)
    monkeypatch.setattr(node_names, "is_plain", is_plain_now)
    monkeypatch.setattr(jit, "IS_INTERPRETED", False)
    monkeypatch.setattr(node_names, "mark_names", entry)
    answered(b'["a"]')
    assert called == [1]


def test_kernels_are_compiled_with_those_of_the_core() -> None:
    assert warm.MODULES_WITH_KERNELS
    assert {"enter_names", "mark_names", "place_group"} <= {kernel.__name__ for kernel in ENTRY_KERNELS}


def test_a_call_needs_no_other_compilation_than_beforehand() -> None:
    warm.compile_kernels()
    targets = [getattr(kernel, "target", None) for kernel in (enter_names, mark_names)]
    before = [len(getattr(target, "signatures", [])) for target in targets]
    names = NodeNames(INDEX)
    for data in (b"[]", b'["a"]', b"", b'["\\u0061"]', b" [ ] "):
        answered(data, names)
    assert [len(getattr(target, "signatures", [])) for target in targets] == before
