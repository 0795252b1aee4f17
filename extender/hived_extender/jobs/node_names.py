"""Lists of node names, tens of thousands in a call of kube-scheduler, become masks over the configured nodes.

A list stays JSON until `NodeNames.mask` has found out whether it is simply one of the last few. If not, a kernel walks
over its bytes, eight at a time, and looks each name up in a table. It understands lists of plain names: ASCII without
escapes, as all names of nodes are. Whatever else it meets, it leaves to msgspec, which decides what that means. So are
all lists while the kernel is plain Python: it would keep the event loop from health probes for a second.

The configured names lie in one array of 8-byte words. A name ends with its closing quote, as in JSON, and the rest of
its last word is zero; so names are equal exactly when their words are.
"""

from collections import deque
from collections.abc import Mapping
from itertools import repeat
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from hived.kernels.jit import READ_ONLY, entry_kernel, is_plain, kernel
from hived.values.errors import UserError

REMEMBERED_LISTS = 4

NO_NODE = -1

Mask = npt.NDArray[np.bool_]
Bytes = Annotated[npt.NDArray[np.uint8], READ_ONLY]
Words = Annotated[npt.NDArray[np.uint64], READ_ONLY]
IntArray = npt.NDArray[np.int32]

_LITTLE_ENDIAN_WORD = np.dtype("<u8")
_names_decoder = msgspec.json.Decoder(list[str])


class NodeNames:
    """Turns lists of node names, still JSON, into masks over the configured nodes.

    kube-scheduler mostly sends the list of the call before, or alternates between two. So the last few are kept and
    recognised by their bytes.
    """

    def __init__(self, node_index: Mapping[str, int]) -> None:
        """`node_index` numbers the nodes from 0, in its own order. Cost O(nodes)."""
        self._node_index = node_index
        self._recent: deque[tuple[bytes, Mask | None]] = deque(maxlen=REMEMBERED_LISTS)
        # Names that are no Unicode text are in no list, and told apart too.
        names = [name.encode("utf-8", "surrogatepass") + b'"' for name in node_index]
        self._words = np.frombuffer(b"".join(name + bytes(-len(name) % 8) for name in names), _LITTLE_ENDIAN_WORD)
        self._first = np.zeros(len(names) + 1, np.int32)
        np.cumsum([(len(name) + 7) // 8 for name in names], out=self._first[1:])
        self._slots = np.full(1 << (2 * len(names)).bit_length(), NO_NODE, np.int32)
        enter_names(self._words, self._first, self._slots)

    def mask(self, raw: msgspec.Raw) -> Mask | None:
        """The configured nodes that the list names: bool, shape (node_count,), read-only; None means all of them.

        Raises UserError if it is no list of strings. Cost: a comparison of bytes if the list is among the last few,
        else O(length).
        """
        data = bytes(raw)
        for known, mask in self._recent:
            if known == data:
                return mask
        found = None if is_plain(mark_names) else self._marked(data)
        mask = self.mask_of(_decoded(data)) if found is None else _none_if_full(found)
        self._recent.appendleft((data, mask))
        return mask

    def _marked(self, data: bytes) -> Mask | None:
        """The nodes that a list of plain names has, found by the kernel; None for any other text. Cost O(length)."""
        # The mask is not made read-only, as that is another type to numba, and the kernel exists for one type.
        found = np.zeros(len(self._node_index), np.bool_)
        is_list = mark_names(np.frombuffer(data, np.uint8), self._words, self._first, self._slots, found)
        return found if is_list else None

    def mask_of(self, names: list[str]) -> Mask | None:
        """As `mask`, from names already decoded; names that are not configured are ignored."""
        node_count = len(self._node_index)
        mask = np.zeros(node_count + 1, np.bool_)
        # names that are not configured all land in the spare last place
        mask[np.fromiter(map(self._node_index.get, names, repeat(node_count)), np.intp, len(names))] = True
        return _none_if_full(mask[:node_count])

    def candidates(self, names: list[str]) -> Mask:
        """As `mask_of`, with all nodes spelled out."""
        mask = self.mask_of(names)
        return np.ones(len(self._node_index), np.bool_) if mask is None else mask


def _none_if_full(mask: Mask) -> Mask | None:
    return None if mask.all() else mask


def _decoded(data: bytes) -> list[str]:
    try:
        return _names_decoder.decode(data)
    except (ValueError, RecursionError) as error:
        hint = " (the extender needs nodeCacheCapable: true)" if data == b"null" else ""
        raise UserError(f"NodeNames must be a list of node names: {error}{hint}") from None


# Kernels. numba turns sums of signed and unsigned numbers into floats, hence the types of all constants. Nothing here
# overflows, so that it is the same arithmetic where nothing is compiled.

_OPEN, _CLOSE, _COMMA, _QUOTE = (np.uint64(ord(each)) for each in '[],"')
_SPACES = (np.uint64(ord(" ")), np.uint64(ord("\n")), np.uint64(ord("\r")), np.uint64(ord("\t")))
_BITS_OF_WORD = np.uint64(64)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_NOTHING, _ONE = np.uint64(0), np.uint64(1)


def _in_each_byte(value: int) -> np.uint64:
    return np.uint64(value * 0x0101010101010101)


_ONES = _in_each_byte(1)
_HIGH_BITS = _in_each_byte(0x80)
_LOW_BITS = _in_each_byte(0x7F)
_QUOTES = _in_each_byte(ord('"'))
_BACKSLASHES = _in_each_byte(ord("\\"))
_UP_FROM_SPACE = _in_each_byte(0x80 - ord(" "))


@entry_kernel
def enter_names(words: Words, first: IntArray, slots: IntArray) -> None:
    """Fill the table of configured names.

    words : those of all names, one name after the other

    first : shape (node_count + 1,); name i has the words from first[i] to first[i + 1]

    slots : out, all NO_NODE; shape a power of two, more than twice the nodes. A node's place is the first one that is
        free from its name's home on
    """
    for node in range(len(first) - 1):
        digest = _NOTHING
        for i in range(first[node], first[node + 1]):
            digest = _mixed(digest, words[i])
        slot = _home(digest, slots)
        while slots[slot] != NO_NODE:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = node


@entry_kernel
def mark_names(data: Bytes, words: Words, first: IntArray, slots: IntArray, mask: Mask) -> bool:
    """Mark the configured nodes of a JSON list of names; False if it is not a list of plain names, or no JSON.

    data : the text; never read beyond its end, where `_word` and `_byte` see zeros, which end every loop

    words, first, slots : as in `enter_names`

    mask : out, all False; shape (node_count,). Of no use if the answer is False

    Cost O(bytes).
    """
    at = _skip_spaces(data, 0)
    if _byte(data, at) != _OPEN:
        return False
    at = _skip_spaces(data, at + 1)
    if _byte(data, at) == _CLOSE:
        return _skip_spaces(data, at + 1) == len(data)
    while _byte(data, at) == _QUOTE:
        begin = at = at + 1
        digest = _NOTHING
        word = _word(data, at)
        stops = _stops(word)
        while stops == _NOTHING:
            digest = _mixed(digest, word)
            at += 8
            word = _word(data, at)
            stops = _stops(word)
        below = (stops & (~stops + _ONE)) - _ONE  # all bits below the first stop's highest
        size = int(np.int64((below & _ONES) % np.uint64(255)))  # bytes up to that stop, which is the last of them
        word &= (below << _ONE) | _ONE
        if word >> np.uint64(8 * (size - 1)) != _QUOTE:
            return False
        node = _find(data, begin, at, word, _home(_mixed(digest, word), slots), words, first, slots)
        if node != NO_NODE:
            mask[node] = True
        at = _skip_spaces(data, at + size)
        separator = _byte(data, at)
        at = _skip_spaces(data, at + 1)
        if separator == _CLOSE:
            return at == len(data)
        if separator != _COMMA:
            return False
    return False


@kernel
def _find(
    data: Bytes, begin: int, at: int, last: np.uint64, home: int, words: Words, first: IntArray, slots: IntArray
) -> int:
    """The node whose name has the words of the text from `begin` to `at`, then `last`; NO_NODE if there is none."""
    slot = home
    while slots[slot] != NO_NODE:
        node = slots[slot]
        end = first[node + 1] - 1
        if end - first[node] == (at - begin) >> 3 and words[end] == last:
            place = begin
            for i in range(first[node], end):
                if words[i] != _word(data, place):
                    break
                place += 8
            if place == at:
                return node
        slot = (slot + 1) & (len(slots) - 1)
    return NO_NODE


@kernel
def _word(data: Bytes, at: int) -> np.uint64:
    """Eight bytes, the first one lowest."""
    if at + 8 <= len(data):
        # Written out, and with unsigned positions, this becomes a single instruction.
        i = np.uint64(at)
        return (
            np.uint64(data[i])
            | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
            | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
            | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
            | np.uint64(data[i + np.uint64(4)]) << np.uint64(32)
            | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
            | np.uint64(data[i + np.uint64(6)]) << np.uint64(48)
            | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)
        )
    word = _NOTHING
    for j in range(len(data) - at):
        word |= np.uint64(data[at + j]) << np.uint64(8 * j)
    return word


@kernel
def _byte(data: Bytes, at: int) -> np.uint64:
    return np.uint64(data[at]) if at < len(data) else _NOTHING


@kernel
def _skip_spaces(data: Bytes, at: int) -> int:
    while _byte(data, at) in _SPACES:
        at += 1
    return at


@kernel
def _stops(word: np.uint64) -> np.uint64:
    """The highest bit of each byte that cannot be within a plain name: quotes, backslashes, control characters, and
    what is not ASCII. Each sum stays within its byte: it reaches the highest bit unless the byte is the one meant.
    """
    low = word & _LOW_BITS
    is_plain = ((low ^ _QUOTES) + _LOW_BITS) & ((low ^ _BACKSLASHES) + _LOW_BITS) & (low + _UP_FROM_SPACE) & ~word
    return ~is_plain & _HIGH_BITS


@kernel
def _mixed(digest: np.uint64, word: np.uint64) -> np.uint64:
    """Every word of a name turns what was before, so that its order matters; large odd numbers spread its bits."""
    turned = (digest << np.uint64(9)) | (digest >> (_BITS_OF_WORD - np.uint64(9)))
    return turned ^ ((word & _LOW_HALF) * np.uint64(0x9E3779B1)) ^ ((word >> _HALF) * np.uint64(0x85EBCA77))


@kernel
def _home(digest: np.uint64, slots: IntArray) -> int:
    """The first slot to look for a name. Middle bits of a product depend on most bits of its factors."""
    return int(np.int64(((digest ^ (digest >> _HALF)) >> np.uint64(8)) & np.uint64(len(slots) - 1)))
