"""Where the text of a dump goes: a stream of text or of bytes, written in large pieces.

The tool's text is UTF-8, whatever the locale. A dump of a gigabyte is written as it is made and never held.
"""

import io
from typing import BinaryIO, TextIO

__all__ = ["Output", "Stream"]

Stream = TextIO | BinaryIO

_PIECE = 1 << 16


class Output:
    """One of the two streams of a run."""

    __slots__ = ("_binary", "_parts", "_size", "_text")

    def __init__(self, stream: Stream) -> None:
        self._text: TextIO | None = None
        self._binary: BinaryIO | None = None
        if isinstance(stream, io.TextIOBase):
            buffer = getattr(stream, "buffer", None)
            if buffer is None:
                self._text = stream
            else:
                stream.flush()
                self._binary = buffer
        else:
            self._binary = stream  # type: ignore[assignment]
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Take text; it reaches the stream with the next flush at the latest."""
        self._parts.append(text)
        self._size += len(text)
        if self._size >= _PIECE:
            self._hand_over()

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Take text that is UTF-8 already. It is consumed before this returns."""
        self._hand_over()
        if self._binary is not None:
            self._binary.write(data)
        else:
            assert self._text is not None
            self._text.write(bytes(data).decode())

    def flush(self) -> None:
        """Bring all that was written to the stream, and what the stream holds back to its file."""
        self._hand_over()
        (self._binary if self._binary is not None else self._text).flush()  # type: ignore[union-attr]

    def _hand_over(self) -> None:
        text = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        if not text:
            return
        if self._binary is not None:
            self._binary.write(text.encode("utf-8", "surrogateescape"))
        else:
            assert self._text is not None
            self._text.write(text)
