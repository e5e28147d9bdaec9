"""Addresses of Python's buffers, for kernels.

The caller keeps the object alive, and does not resize it, while a kernel works on its address.
"""

from ctypes import addressof, c_char
from typing import Any

import numpy as np

__all__ = ["address_of"]


def address_of(buffer: Any) -> tuple[int, int]:
    """Address and size in bytes of any object with contiguous bytes: bytes, memoryview, mmap, array, Arrow buffer."""
    view = memoryview(buffer)
    if not view.readonly and view.nbytes:  # the short way, which matters for a broker's small batches
        return addressof(c_char.from_buffer(view)), view.nbytes
    array = np.frombuffer(view, np.uint8)
    return array.__array_interface__["data"][0], array.size
