"""Bytes that something happened to."""

from random import Random

SPECIAL = [0x00, 0x01, 0x7F, 0x80, 0xFF, 0xED, 0xC3]


def damaged(random: Random, data: bytes) -> bytes:
    """The bytes after one to three accidents: some replaced, cut off, left out or put in."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) + 1)
        size = random.choice([1, 1, 2, 4, 8])
        accident = random.randrange(6)
        if accident == 0:
            del changed[at:]
        elif accident == 1:
            del changed[at : at + size]
        elif accident == 2:
            changed[at:at] = bytes(random.choices(SPECIAL, k=size))
        elif accident == 3:
            changed[at : at + size] = random.getrandbits(8 * size).to_bytes(size, "big")
        else:
            changed[at : at + size] = bytes([random.choice(SPECIAL)]) * size
    return bytes(changed)
