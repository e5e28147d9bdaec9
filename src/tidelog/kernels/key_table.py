"""Keys and their last offsets, for compaction: a hash table of 24 bytes a slot, without the keys.

A key is known by 128 bits of SipHash (one round a word, three at the end; its four words are folded to two, and not
to one) under a secret of the table: two keys that are taken for one another would be a record lost, so nobody may be
able to make such a pair. Slots are searched one behind the other from the one that the hash names; a slot that was
never used is all zero.

The table begins small, so that few keys stay within the caches, and grows by doubling up to `slots`; while it is being
doubled, the old one is there as well. Kernels that look up many keys hash some thousand first, and then ask for the
memory of a slot some keys before they look at it.
"""

import os
from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidelog.errors import InvalidRequestError
from tidelog.kernels.memory import (
    load_i64,
    prefetch,
    put_word,
    store_64,
    word_at,
)
from tidelog.kernels.runtime import inlined, inner, kernel

__all__ = ["ABSENT", "SLOT_SIZE", "KeyTable", "State", "ask_for", "find_slot", "hash_key", "is_taken", "take_slot"]

SLOT_SIZE = 24  # two words of hash, one of offset
ABSENT = -1
_SLOT_WORDS = SLOT_SIZE // 8
_FIRST_SLOTS = 1 << 12
_MAX_SLOTS = 1 << 31  # an index is 32 bits of hash times the slots, in 63 bits


class State(IntEnum):
    """The int64 words through which kernels know a table."""

    TABLE = 0  # address of the first slot
    CAPACITY = auto()  # slots there are now
    SIZE = auto()  # slots that are taken
    SECRET_0 = auto()
    SECRET_1 = auto()
    WORDS = auto()  # how many there are


# Kernels take plain numbers.
_TABLE = State.TABLE.value
_CAPACITY = State.CAPACITY.value
_SIZE = State.SIZE.value
_SECRET_0 = State.SECRET_0.value
_SECRET_1 = State.SECRET_1.value


@intrinsic
def _rotate(typing_context: Any, value: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word, [word, word, word]), "llvm.fshl.i64"
        )
        return builder.call(function, [arguments[0], *arguments])

    return types.int64(types.int64, types.int64), generate


rotated = cast(Callable[[int, int], int], _rotate)  # to the left


@inlined
def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    """What SipHash does to its four words, again and again."""
    a += b
    c += d
    b = rotated(b, 13) ^ a
    d = rotated(d, 16) ^ c
    a = rotated(a, 32) + d
    c += b
    b = rotated(b, 17) ^ c
    d = rotated(d, 21) ^ a
    return a, b, rotated(c, 32), d


@inner
def hash_key(state: int, address: int, size: int) -> tuple[int, int]:
    """Two words of hash for `size` bytes, behind which 8 more may be read. The second is never zero."""
    secret_0 = word_at(state, _SECRET_0)
    secret_1 = word_at(state, _SECRET_1)
    a = secret_0 ^ 0x736F6D6570736575
    b = secret_1 ^ 0x646F72616E646F6D
    c = secret_0 ^ 0x6C7967656E657261
    d = secret_1 ^ 0x7465646279746573
    for left in range(size, -1, -8):
        word = load_i64(address)
        if left < 8:
            word = word & (1 << 8 * left) - 1 | size << 56
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
        address += 8
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b, c ^ d | 1


@inlined
def _home_of(table: int, capacity: int, first: int) -> int:
    return table + SLOT_SIZE * ((first & 0xFFFFFFFF) * capacity >> 32)


@inlined
def ask_for(state: int, first: int) -> None:
    """Have the slot of a hash brought near."""
    prefetch(_home_of(word_at(state, _TABLE), word_at(state, _CAPACITY), first))


@inlined
def find_slot(state: int, first: int, second: int) -> int:
    """The address of the slot of a hash, or of the free one where it would go, or 0 if there is neither."""
    table = word_at(state, _TABLE)
    capacity = word_at(state, _CAPACITY)
    slot = _home_of(table, capacity, first)
    for _ in range(capacity):
        other = load_i64(slot + 8)
        if other == second and load_i64(slot) == first or other == 0:
            return slot
        slot += SLOT_SIZE
        if slot == table + SLOT_SIZE * capacity:
            slot = table
    return 0


@inlined
def is_taken(slot: int) -> bool:
    """Whether a slot that was found is the one of its hash."""
    return slot != 0 and load_i64(slot + 8) != 0


@inlined
def take_slot(state: int, slot: int, first: int, second: int) -> None:
    """Give a free slot to a hash."""
    store_64(slot, first)
    store_64(slot + 8, second)
    put_word(state, _SIZE, word_at(state, _SIZE) + 1)


@kernel("int64(int64, int64, int64, int64)")
def seek(state: int, address: int, size: int, takes: int) -> int:
    """The address of the slot of a key, or 0. With `takes`, a free one is given to a key that has none."""
    first, second = hash_key(state, address, size)
    slot = find_slot(state, first, second)
    if slot and not is_taken(slot):
        if not takes:
            return 0
        take_slot(state, slot, first, second)
    return slot


@kernel("int64(int64, int64, int64)")
def move_slots(table: int, capacity: int, state: int) -> int:
    """Put every taken slot of a table into the one of `state`, which is larger and empty; how many there were."""
    for index in range(capacity):
        first = word_at(table, _SLOT_WORDS * index)
        second = word_at(table, _SLOT_WORDS * index + 1)
        if second != 0:
            slot = find_slot(state, first, second)
            take_slot(state, slot, first, second)
            store_64(slot + 16, word_at(table, _SLOT_WORDS * index + 2))
    return word_at(state, _SIZE)


class KeyTable:
    """Up to `slots` keys. `state` is the address that kernels take; the table owns the memory behind it.

    >>> table = KeyTable(1000)
    >>> table.put(b"key", 5)
    >>> table.get(b"key"), table.get(b"other"), len(table)
    (5, -1, 1)
    """

    def __init__(self, slots: int, *, secret: bytes | None = None) -> None:
        if not 0 < slots <= _MAX_SLOTS:
            raise InvalidRequestError(f"a table of {slots} slots: it can have 1 to {_MAX_SLOTS}")
        self.slots = slots
        self._state = np.zeros(State.WORDS, np.int64)
        self.state: int = self._state.ctypes.data
        # Whoever sends keys must not know it. What is found in the table does not depend on it.
        secret = os.urandom(16) if secret is None else secret
        self._state[_SECRET_0 : _SECRET_1 + 1] = np.frombuffer(secret, np.int64, 2)
        self.clear()

    def __len__(self) -> int:
        return int(self._state[_SIZE])

    @property
    def capacity(self) -> int:
        """Slots there are now."""
        return int(self._state[_CAPACITY])

    def clear(self) -> None:
        """Forget every key, and give the memory back."""
        capacity = self.slots
        while capacity > _FIRST_SLOTS:
            capacity = (capacity + 1) // 2
        self._set_room(capacity)

    def _set_room(self, capacity: int) -> None:
        self._slots = np.zeros(capacity * _SLOT_WORDS, np.int64)
        self._state[_TABLE : _SIZE + 1] = self._slots.ctypes.data, capacity, 0

    def make_room(self, more: int) -> None:
        """Grow until `more` keys can come with half of the slots free, or no more growth is allowed."""
        wanted = capacity = self.capacity
        while wanted < self.slots and 2 * (len(self) + more) > wanted:
            wanted = min(2 * wanted, self.slots)
        if wanted > capacity:
            old = self._slots
            self._set_room(wanted)
            move_slots(old.ctypes.data, capacity, self.state)

    def put(self, key: bytes | bytearray | memoryview, offset: int) -> None:
        """Remember the offset of a key."""
        self.make_room(1)
        word = self._offset_word(key, takes=True)
        if word < 0:
            raise InvalidRequestError(f"the table has {self.slots} slots, and all are taken")
        self._slots[word] = offset

    def get(self, key: bytes | bytearray | memoryview) -> int:
        """The offset of a key, or -1."""
        word = self._offset_word(key, takes=False)
        return ABSENT if word < 0 else int(self._slots[word])

    def _offset_word(self, key: bytes | bytearray | memoryview, *, takes: bool) -> int:
        padded = np.frombuffer(bytes(key) + bytes(8), np.uint8)
        slot = seek(self.state, padded.ctypes.data, len(key), int(takes))
        return (slot - int(self._state[_TABLE])) // 8 + 2 if slot else -1
