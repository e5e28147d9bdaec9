"""The table of keys: a dict that knows hashes only."""

import random

import numba
import numpy as np
import pytest

from tidelog.kernels.key_table import SLOT_SIZE, KeyTable, hash_key

WORD = 2**64 - 1


@numba.njit("UniTuple(int64, 2)(int64, int64, int64)")
def hash_of(state: int, address: int, size: int) -> tuple[int, int]:
    """The hash, for Python."""
    return hash_key(state, address, size)


def siphash_1_3(secret: bytes, data: bytes) -> int:
    """SipHash with one round a word and three at the end, as its authors describe it."""
    k0, k1 = (int.from_bytes(secret[i : i + 8], "little") for i in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> 64 - bits) & WORD

    def sip_round() -> None:
        v[0] = v[0] + v[1] & WORD
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] = v[2] + v[3] & WORD
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = v[0] + v[3] & WORD
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = v[2] + v[1] & WORD
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 255, 256, 1000])
def test_both_words_of_a_hash_together_are_siphash(size: int) -> None:
    rng = random.Random(size)
    secret, data = rng.randbytes(16), rng.randbytes(size)
    table = KeyTable(10, secret=secret)
    padded = np.frombuffer(data + rng.randbytes(8), np.uint8)  # what is behind the key does not count
    first, second = hash_of(table.state, padded.ctypes.data, size)
    assert second & 1, "it marks a slot as taken"
    assert (first ^ second) & WORD & ~1 == siphash_1_3(secret, data) & ~1


def test_tables_hash_under_secrets_of_their_own() -> None:
    padded = np.frombuffer(b"key" + bytes(8), np.uint8)
    tables = [KeyTable(10) for _ in range(20)]
    assert len({hash_of(table.state, padded.ctypes.data, 3) for table in tables}) == 20


@pytest.mark.parametrize("slots", [1, 2, 3, 100, 4096, 4097, 20_000, 100_000])
def test_a_table_is_a_dict_while_it_grows_and_when_it_is_full(slots: int) -> None:
    rng = random.Random(slots)
    table, truth = KeyTable(slots), dict[bytes, int]()
    keys = [rng.randbytes(rng.choice((0, 3, 8, 20, 70))) for _ in range(min(slots, 12_000))]
    for offset in range(2 * len(keys)):
        key = rng.choice(keys)
        table.put(key, offset)
        truth[key] = offset
    assert len(table) == len(truth)
    assert table.capacity <= slots
    assert all(table.get(key) == truth.get(key, -1) for key in keys)
    assert table.get(b"no such key") == -1


def test_a_table_takes_memory_as_keys_come() -> None:
    table = KeyTable(5_592_405)
    sizes = [table.capacity]
    for number in range(20_000):
        table.put(b"%d" % number, number)
        sizes.append(table.capacity)
    assert sizes[0] * SLOT_SIZE < 100_000
    assert 40_000 <= sizes[-1] < 100_000
    assert all(after <= 2 * before for before, after in zip(sizes, sizes[1:], strict=False))
    table.clear()
    assert table.capacity == sizes[0]


def test_numbers_of_any_sign_are_offsets() -> None:
    table = KeyTable(10)
    for offset in (-(2**63), -1, 0, 2**63 - 1):
        table.put(b"key", offset)
        assert table.get(b"key") == offset


def test_searching_goes_on_at_the_start_behind_the_last_slot() -> None:
    """Three slots, all taken: whatever the hashes are, some search goes round."""
    for seed in range(20):
        table = KeyTable(3, secret=random.Random(seed).randbytes(16))
        for number in range(3):
            table.put(b"%d" % number, number)
        assert [table.get(b"%d" % number) for number in range(4)] == [0, 1, 2, -1]
