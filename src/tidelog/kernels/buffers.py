"""Addresses of Python's buffers, for kernels.

An address is true only while the buffer is held: callers keep the memoryview until the kernel is back, so that nobody
can free or resize the memory meanwhile, even from another thread (kernels release the GIL).
"""

from ctypes import addressof, c_char
from typing import Any

import numpy as np

__all__ = ["address_of", "hold"]


def hold(buffer: Any) -> memoryview:
    """A view of any object with contiguous bytes: bytes, memoryview, mmap, array, Arrow buffer. While it lives, the
    object can be neither freed nor resized."""
    return memoryview(buffer).cast("B")


def address_of(buffer: Any) -> tuple[int, int]:
    """Address and size in bytes of a buffer that the caller holds."""
    view = memoryview(buffer)
    if not view.readonly and view.nbytes:  # the short way, which matters for a broker's small batches
        return addressof(c_char.from_buffer(view)), view.nbytes
    array = np.frombuffer(view, np.uint8)
    return array.__array_interface__["data"][0], array.size
