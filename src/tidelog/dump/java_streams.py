"""Compressed streams as Kafka's readers see them: so many plain bytes, and then the end or an exception.

Only streams that `tidelog.records` refuses come here. What can be read before the exception is what the codec had
handed over by then, block by block.
"""

from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import Release
from tidelog.errors import DecompressionError
from tidelog.records.compression import Codec, decompress

__all__ = ["JavaStream", "open_stream"]


class JavaStream:
    """The plain bytes of a stream up to where it breaks.

    Where a buffer lies before it, what the break leaves half filled is lost. Reads as large as the buffer go past it.
    """

    __slots__ = ("_buffer_size", "_buffered", "_data", "_error", "_position")

    def __init__(self, data: bytes | bytearray, error: JavaError | None = None, *, buffer_size: int = 0) -> None:
        self._data = data
        self._error = error
        self._position = 0
        self._buffer_size = buffer_size
        self._buffered = 0  # up to which position

    def read(self, size: int) -> bytes:
        """`size` bytes, or fewer where the stream ends."""
        start = self._position
        self._position = min(start + size, len(self._data))
        if self._error is not None and self._read_to(start + size) > len(self._data):
            raise self._error
        return bytes(self._data[start : self._position])

    def _read_to(self, end: int) -> int:
        """How far the stream itself is read, for what is wanted."""
        if end > self._buffered:
            missing = end - self._buffered
            self._buffered += missing if missing >= self._buffer_size else self._buffer_size
        return self._buffered

    def read_all(self) -> bytes:
        """Everything that is left, or the error that comes before the end."""
        data = self.read(len(self._data) - self._position)
        if self._error is not None:
            raise self._error
        return data


def open_stream(codec: Codec, data: memoryview, magic: int, release: Release, *, start: int) -> JavaStream:
    """Start reading a stream that begins at `start` of its batch; some exceptions come already here."""
    try:
        return JavaStream(decompress(codec, data, magic=0 if magic == 0 and codec is Codec.LZ4 else 2))
    except DecompressionError:
        pass  # and let go of what it had read
    from tidelog.dump.broken_streams import broken_stream

    return broken_stream(codec, data, magic, release, start)
