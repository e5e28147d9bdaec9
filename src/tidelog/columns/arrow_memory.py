"""Arrow arrays whose buffers a kernel fills.

Buffers come from Arrow's default pool: its memory is already mapped when the next chunk of the log asks for it, where
numpy would fault in fresh pages (half the speed). A buffer is allocated at an upper bound and cut to what was used.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.kernels.memory import SLACK

__all__ = ["Binary", "Bitmap", "allocate", "as_numpy", "fixed_array"]


def allocate(size: int) -> pa.ResizableBuffer:
    """`size` bytes from Arrow's pool, not cleared."""
    return pa.allocate_buffer(size, resizable=True)


def as_numpy(buffer: pa.Buffer, dtype: Any) -> np.ndarray[Any, Any]:
    """The same memory as a numpy array."""
    return np.frombuffer(buffer, dtype)


def fixed_array(data_type: pa.DataType, length: int, buffer: pa.Buffer) -> pa.Array:
    """An array without nulls over a filled buffer."""
    return pa.Array.from_buffers(data_type, length, [None, buffer], 0)


class Bitmap:
    """A validity bitmap in which every entry is valid until a kernel clears it."""

    def __init__(self, length: int) -> None:
        self.buffer = allocate((length + 7) // 8)
        as_numpy(self.buffer, np.uint8).fill(0xFF) if length else None
        self.address: int = self.buffer.address

    def if_any(self, nulls: int) -> pa.Buffer | None:
        """The bitmap, or None, which says the same for less, where nothing is null."""
        return self.buffer if nulls else None


class Binary:
    """A variable-length column in the making: offsets, data, validity."""

    def __init__(self, rows: int, max_bytes: int) -> None:
        self.rows = rows
        self.offsets = allocate(4 * (rows + 1))
        as_numpy(self.offsets, np.int32)[0] = 0
        self.data = allocate(max_bytes + SLACK)
        self.validity = Bitmap(rows)

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Of offsets, data and validity, in the order of the kernels' slots."""
        return self.offsets.address, self.data.address, self.validity.address

    def finish(self, data_type: pa.DataType, used: int, nulls: int) -> pa.Array:
        """The array, once `used` bytes have been filled in."""
        self.data.resize(used, shrink_to_fit=True)
        return pa.Array.from_buffers(
            data_type, self.rows, [self.validity.if_any(nulls), self.offsets, self.data], nulls
        )
