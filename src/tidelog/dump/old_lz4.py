"""Where liblz4 1.9.3 gives up on a broken block. Newer ones look at lengths in another order, and stop elsewhere.

Kafka's tools up to 4.1 print that place. The walk is the one of LZ4_decompress_safe, without the copying.
"""

from typing import Final

__all__ = ["failed_at"]

_FAST_DISTANCE: Final = 64  # from the end of the target: up to there, checks come in another order
_LAST_LITERALS: Final = 5
_MATCH_LIMIT: Final = 12
_MIN_MATCH: Final = 4
_RUN: Final = 15  # a length of this goes on in the next bytes


class _Failure(Exception):
    """The block is broken."""


def failed_at(block: bytes, target_size: int) -> int:
    """The position in the block, counted from 1, or 0 if nothing is wrong with it."""
    walk = _Walk(block, target_size)
    try:
        walk.run()
    except _Failure:
        return walk.position + 1
    return 0


class _Walk:
    def __init__(self, block: bytes, target_size: int) -> None:
        self.position = 0
        self._block = block
        self._size = len(block)
        self._target_size = target_size
        self._written = 0
        self._is_fast = target_size >= _FAST_DISTANCE

    def run(self) -> None:
        if not self._size:
            raise _Failure
        while True:
            token = self._next_byte()
            if self._take_literals(token >> 4):
                return
            self._copy_match(token & _RUN)

    def _take_literals(self, length: int) -> bool:
        """Pass over literals; whether they were the last."""
        if length == _RUN:
            if self.position >= self._size - _RUN:
                raise _Failure
            length += self._more_length(self._size - _RUN)
            if self._written + length > self._target_size - 32 or self.position + length > self._size - 32:
                self._is_fast = False
        elif self.position > self._size - 17:
            self._is_fast = False
        end = self._written + length
        if not self._is_fast and (
            end > self._target_size - _MATCH_LIMIT or self.position + length > self._size - 3 - _LAST_LITERALS
        ):
            if self.position + length != self._size or end > self._target_size:
                raise _Failure
            return True
        self.position += length
        self._written = end
        return False

    def _copy_match(self, length: int) -> None:
        distance = self._next_byte() | self._next_byte() << 8
        is_outside = distance > self._written
        if length == _RUN:
            if self._is_fast and is_outside:
                raise _Failure
            limit = self._size - _LAST_LITERALS + 1
            length += self._more_length(limit)
            if self.position >= limit:
                raise _Failure
        end = self._written + length + _MIN_MATCH
        if end >= self._target_size - _FAST_DISTANCE:
            self._is_fast = False
        if is_outside or end > self._target_size - _LAST_LITERALS:
            raise _Failure
        self._written = end

    def _more_length(self, limit: int) -> int:
        """The bytes that a length goes on with, up to one that is not full or the limit."""
        length = 0
        while True:
            byte = self._next_byte()
            length += byte
            if byte < 255 or self.position >= limit:
                return length

    def _next_byte(self) -> int:
        byte = self._block[self.position]
        self.position += 1
        return byte
