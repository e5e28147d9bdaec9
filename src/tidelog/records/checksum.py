"""The two checksums of the record formats.

Version 2 batches carry CRC-32C (Castagnoli), because processors compute it in hardware; legacy messages carry the
older CRC-32 of zlib and gzip.

>>> hex(crc32c_of(b"123456789")), hex(crc32_of(b"123456789"))
('0xe3069283', '0xcbf43926')
"""

import zlib

__all__ = ["crc32_of", "crc32c_of"]


def crc32c_of(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """CRC-32C, of version 2 batches, as an unsigned number; `before` is that of the bytes before `data`."""
    # Imported when first needed: the package takes longer to import than all of tidelog.records, and who reads
    # columns lets the kernels compare checksums.
    from crc32c import crc32c

    return int(crc32c(data, before))


def crc32_of(data: bytes | bytearray | memoryview) -> int:
    """CRC-32, of legacy messages, as an unsigned number."""
    return zlib.crc32(data)
