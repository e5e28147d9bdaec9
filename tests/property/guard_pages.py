"""Memory with a page on either side that nobody may touch.

A kernel that reads or writes one byte too far usually goes unpunished: something of ours lies there. Between guard
pages it ends the process instead, which no test can overlook.
"""

import ctypes
import mmap
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Room for up to `size` bytes between two guard pages, used again and again."""

    def __init__(self, size: int) -> None:
        self.room = -(-size // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self.room + 2 * _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for guard in (start, start + _PAGE + self.room):
            if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(_PAGE), _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.first = start + _PAGE  # address of the first byte that may be touched
        self.end = self.first + self.room
        self._view = memoryview(self._map)[_PAGE : _PAGE + self.room]

    def at_end(self, size: int) -> memoryview:
        """The last `size` bytes: whoever reads on hits the guard."""
        return self._view[self.room - size :]

    def at_start(self, size: int) -> memoryview:
        """The first `size` bytes: whoever reads before them hits the guard."""
        return self._view[:size]

    def put(self, data: Any, *, at_start: bool = False) -> memoryview:
        """Copy `data` to the end, or the start; the copy."""
        view = self.at_start(len(data)) if at_start else self.at_end(len(data))
        view[:] = data
        return view

    def array(self, size: int, dtype: Any, fill: int = 0) -> np.ndarray[Any, Any]:
        """An array of `size` entries that ends at the guard."""
        array = np.frombuffer(self.at_end(size * np.dtype(dtype).itemsize), dtype)
        array.fill(fill)
        return array
