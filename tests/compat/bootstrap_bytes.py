"""Damage to the bytes of bootstrap.checkpoint, most of which Kafka does not notice, each with a name."""

from collections.abc import Callable

from tidelog.records import read_batches


def with_bit(at: int) -> Callable[[bytes], bytes]:
    """Flip the lowest bit of a byte of the second batch, which holds the records."""

    def change(data: bytes) -> bytes:
        first, *_ = read_batches(data)
        position = first.size_in_bytes + at
        return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]

    return change


BOOTSTRAP_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "a cut footer": lambda data: data[:-30],
    "cut records": lambda data: data[:123],
    "a few bytes more": lambda data: data + b"abc",
    "zeros at the end": lambda data: data + bytes(40),
    "a changed offset": with_bit(7),
    "a changed length": with_bit(11),
    "a changed epoch": with_bit(15),
    "a changed version": with_bit(16),
    "a changed checksum": with_bit(18),
    "a changed record": with_bit(70),
}
