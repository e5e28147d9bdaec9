"""Keys and payloads as text: what the tool prints without a decoder option."""

from tidelog.records.java import decode_utf8
from tidelog.records.record import Record

__all__ = ["PlainText"]


class PlainText:
    """UTF-8, with a replacement character for what is broken. Nothing is printed of what is null."""

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        key, value = record.key, record.value
        return (None if key is None else decode_utf8(key), None if value is None else decode_utf8(value))
