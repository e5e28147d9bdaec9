"""Checksums by tables, eight bytes at a time, for any reflected 32-bit polynomial.

`tables[k][b]` is the checksum of byte b followed by k zero bytes. A checksum is linear, so that of eight bytes is the
sum (exclusive or) of eight look-ups. Entries are int64, the only type that kernels compute with.
"""

from typing import Any

import numpy as np

from tidelog.kernels.memory import load_i64, load_u8
from tidelog.kernels.runtime import inner

__all__ = ["Tables", "byte_tables", "crc_by_tables"]

Tables = np.ndarray[Any, np.dtype[np.int64]]


def byte_tables(polynomial: int) -> Tables:
    """The eight tables of a polynomial, given with its bits reflected."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        tables[0, byte] = crc
    for zeros in range(1, 8):
        tables[zeros] = tables[zeros - 1] >> 8 ^ tables[0][tables[zeros - 1] & 0xFF]
    return tables


@inner
def crc_by_tables(address: int, size: int, tables: Tables) -> int:
    """The checksum of `size` bytes at `address`."""
    crc = 0xFFFFFFFF
    end = address + size
    while end - address >= 8:
        word = load_i64(address) ^ crc
        crc = 0
        for byte in range(8):
            crc ^= int(tables[7 - byte, word >> 8 * byte & 0xFF])
        address += 8
    while address < end:
        crc = int(tables[0, (crc ^ load_u8(address)) & 0xFF]) ^ crc >> 8
        address += 1
    return crc ^ 0xFFFFFFFF
