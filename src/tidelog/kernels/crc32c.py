"""CRC-32C at memory speed.

x86 processors have an instruction for it that takes three cycles but can start every cycle, so three stretches of 256
bytes are summed side by side and then joined: each checksum is moved over the bytes that follow it (see
`crc32c_instructions`). Longer stretches would defeat the prefetcher. What is left at the end, and all of a short batch,
is summed in three stretches of 40 bytes, which is up to twice as fast as one behind the other.

Newer ones (AMD since Zen 3, Intel since Ice Lake) multiply polynomials in wide vectors, in another unit and at the same
time: half as fast again (see `crc32c_blocks`).

Where the instructions are missing (another architecture, or a processor that numba was told to assume), tables for
eight bytes at a time do the same at a tenth of the speed. The choice follows the target that numba compiles for, not
the machine: code for a target without an instruction would abort the process.
"""

from numba.core.registry import cpu_target

from tidelog.kernels.crc32c_blocks import BLOCK, crc_of_blocks
from tidelog.kernels.crc32c_instructions import POLYNOMIAL, carryless, crc_byte, crc_word, over
from tidelog.kernels.crc_tables import byte_tables, crc_by_tables
from tidelog.kernels.memory import load_i64, load_u8
from tidelog.kernels.runtime import inlined, inner, kernel

__all__ = ["crc32c", "crc32c_at", "crc32c_portable", "has_crc_instruction", "has_wide_multiplication"]

_LANE = 256  # bytes of each of three stretches
_SHORT_LANE = 40


def _features() -> set[str]:
    """What the processor has that kernels are compiled for; nothing if it is of another architecture."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return set(features.split(",")) if triple.startswith("x86_64") else set()


def has_crc_instruction() -> bool:
    """Whether kernels are compiled for a processor with the instructions that this needs."""
    return {"+sse4.2", "+pclmul"} <= _features()


def has_wide_multiplication() -> bool:
    """Whether it can multiply polynomials in vectors of 32 bytes as well."""
    features = _features()
    return has_crc_instruction() and {"+avx2", "+vpclmulqdq"} <= features and "-avx" not in features


_OVER_ONE, _OVER_TWO, _OVER_THREE = (over(lanes * _LANE) for lanes in (1, 2, 3))
_OVER_ONE_SHORT, _OVER_TWO_SHORT, _OVER_THREE_SHORT = (over(lanes * _SHORT_LANE) for lanes in (1, 2, 3))


@inlined
def _crc_of_rest(crc: int, address: int, end: int) -> int:
    """The checksum `crc` with bytes that are too few for long stretches."""
    while end - address >= 3 * _SHORT_LANE:
        first = 0  # and not `crc`: the next stretches need not wait until these are joined
        second = 0
        third = 0
        for _ in range(_SHORT_LANE // 8):
            first = crc_word(first, load_i64(address))
            second = crc_word(second, load_i64(address + _SHORT_LANE))
            third = crc_word(third, load_i64(address + 2 * _SHORT_LANE))
            address += 8
        joined = carryless(crc, _OVER_THREE_SHORT) ^ carryless(first, _OVER_TWO_SHORT)
        crc = crc_word(0, joined ^ carryless(second, _OVER_ONE_SHORT)) ^ third
        address += 2 * _SHORT_LANE
    while end - address >= 8:
        crc = crc_word(crc, load_i64(address))
        address += 8
    while address < end:
        crc = crc_byte(crc, load_u8(address))
        address += 1
    return crc


@inner
def _crc32c_by_blocks(address: int, size: int) -> int:
    crc = 0xFFFFFFFF
    end = address + size
    if size >= BLOCK:
        blocks = size // BLOCK
        crc = crc_of_blocks(crc, address, blocks)
        address += blocks * BLOCK
    return _crc_of_rest(crc, address, end) ^ 0xFFFFFFFF


@inner
def _crc32c_by_instruction(address: int, size: int) -> int:
    crc = 0xFFFFFFFF
    end = address + size
    while end - address >= 3 * _LANE:
        first = 0
        second = 0
        third = 0
        for _ in range(_LANE // 8):  # a counted loop is unrolled whole; a while loop loses a quarter of the speed
            first = crc_word(first, load_i64(address))
            second = crc_word(second, load_i64(address + _LANE))
            third = crc_word(third, load_i64(address + 2 * _LANE))
            address += 8
        joined = carryless(crc, _OVER_THREE) ^ carryless(first, _OVER_TWO)
        crc = crc_word(0, joined ^ carryless(second, _OVER_ONE)) ^ third
        address += 2 * _LANE
    return _crc_of_rest(crc, address, end) ^ 0xFFFFFFFF


_BYTES = byte_tables(POLYNOMIAL)


@inner
def _crc32c_by_tables(address: int, size: int) -> int:
    return crc_by_tables(address, size, _BYTES)


if has_wide_multiplication():
    crc32c_at = _crc32c_by_blocks
elif has_crc_instruction():
    crc32c_at = _crc32c_by_instruction
else:
    crc32c_at = _crc32c_by_tables


@kernel("int64(int64, int64)")
def crc32c(address: int, size: int) -> int:
    """CRC-32C of `size` bytes at `address`."""
    return crc32c_at(address, size)


@kernel("int64(int64, int64)")
def crc32c_portable(address: int, size: int) -> int:
    """The same by tables, which a processor without the instructions uses for everything."""
    return _crc32c_by_tables(address, size)
