import pytest

from tidelog.records.checksum import crc32_of, crc32c_of

# The check values of the catalogue of CRCs, and the examples of RFC 3720 (iSCSI), B.4.
CASES = {
    "nothing": (b"", 0, 0),
    "the digits": (b"123456789", 0xE3069283, 0xCBF43926),
    "32 zeros": (bytes(32), 0x8A9136AA, 0x190A55AD),
    "32 ones": (b"\xff" * 32, 0x62A8AB43, 0xFF6CAB0B),
    "ascending": (bytes(range(32)), 0x46DD794E, 0x91267E8A),
    "descending": (bytes(range(31, -1, -1)), 0x113FDB5C, 0x9AB0EF72),
}


@pytest.mark.parametrize(("data", "castagnoli", "zlib"), CASES.values(), ids=CASES)
def test_known_bytes_have_their_known_checksums(data: bytes, castagnoli: int, zlib: int) -> None:
    for view in (data, bytearray(data), memoryview(data), memoryview(b"<" + data + b">")[1:-1]):
        assert crc32c_of(view) == castagnoli
        assert crc32_of(view) == zlib


def by_the_polynomial(data: bytes, reversed_polynomial: int) -> int:
    """A CRC bit by bit, as textbooks define it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (reversed_polynomial if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("size", [*range(1, 40), 255, 256, 1000])
def test_checksums_follow_their_polynomials_at_every_length(size: int) -> None:
    data = bytes(index * 37 + 11 & 0xFF for index in range(size))
    assert crc32c_of(data) == by_the_polynomial(data, 0x82F63B78)
    assert crc32_of(data) == by_the_polynomial(data, 0xEDB88320)


def test_every_single_flipped_bit_changes_both_checksums() -> None:
    data = bytearray(b"the tide comes in")
    castagnoli, zlib = {crc32c_of(data)}, {crc32_of(data)}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        castagnoli.add(crc32c_of(data))
        zlib.add(crc32_of(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(castagnoli) == len(zlib) == 1 + 8 * len(data)
