"""CRC-32 of legacy messages. Old segments are rare; tables are fast enough for them."""

from tidelog.kernels.crc_tables import byte_tables, crc_by_tables
from tidelog.kernels.runtime import inner

__all__ = ["crc32_at"]

_BYTES = byte_tables(0xEDB88320)


@inner
def crc32_at(address: int, size: int) -> int:
    """CRC-32 of `size` bytes at `address`."""
    return crc_by_tables(address, size, _BYTES)
