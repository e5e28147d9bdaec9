"""Java's byte buffers, as far as reading a broken record touches them.

Where a record is sound, `tidelog.records` reads it. Where it is not, which exception comes first, and in which words,
depends on how Kafka walks over its buffers; this is that walk.
"""

from tidelog.dump.java_errors import JavaError, illegal_argument
from tidelog.records.java import wrap_int32, wrap_int64

__all__ = ["JavaBytes", "Underflow", "varint_of"]


class Underflow(JavaError):
    """A read beyond the limit of a buffer."""

    def __init__(self) -> None:
        super().__init__("java.nio.BufferUnderflowException")


class JavaBytes:
    """A buffer with a position, read up to its end."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def byte(self) -> int:
        """The next byte, without sign."""
        if self.position >= len(self.data):
            raise Underflow
        byte = self.data[self.position]
        self.position += 1
        return byte

    def varint(self, *, unrolled: bool) -> int:
        """A zigzag number of 32 bits."""
        return varint_of(self.byte, unrolled=unrolled)

    def varlong(self) -> int:
        """A zigzag number of 64 bits."""
        value = shift = 0
        while (byte := self.byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise illegal_argument(
                    "Varlong is too long, most significant bit in the 10th byte is set, "
                    f"converted value: {value & (1 << 64) - 1:x}"
                )
        value = (value | byte << shift) & (1 << 64) - 1
        return wrap_int64(value >> 1 ^ -(value & 1))

    def field(self, size: int) -> bytes | None:
        """The next `size` bytes; a negative size is null."""
        if size < 0:
            return None
        if size > self.remaining:
            raise illegal_argument(f"newLimit > capacity: ({size} > {self.remaining})")
        start = self.position
        self.position += size
        return bytes(self.data[start : self.position])


def varint_of(next_byte: object, *, unrolled: bool) -> int:
    """A zigzag number of 32 bits from a source of bytes. Since 3.6 the fifth byte is part of what an error names."""
    assert callable(next_byte)
    value = shift = 0
    while (byte := next_byte()) & 0x80:
        if shift == 28 and unrolled:
            raise _too_long(value | (byte - 256) << 28)
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 28:
            raise _too_long(value)
    value = (value | byte << shift) & (1 << 32) - 1
    return wrap_int32(value >> 1 ^ -(value & 1))


def _too_long(value: int) -> JavaError:
    return illegal_argument(
        "Varint is too long, the most significant bit in the 5th byte is set, "
        f"converted value: {value & (1 << 32) - 1:x}"
    )
