"""CRC-32C at memory speed.

x86 processors have an instruction for it that takes three cycles but can start every cycle, so three stretches of 256
bytes are summed side by side and then joined. Longer stretches would defeat the prefetcher.

Joining means moving a checksum over the bytes that follow it. A checksum is a remainder of polynomials modulo P, and
moving it over n bytes multiplies it by x^(8n) mod P: one carry-less multiplication by a constant, and one more CRC
instruction that takes the product of 64 bits back to 32. That instruction multiplies by x^32 itself, and bits stand in
reverse order, which costs one more x; hence the constant is x^(8n - 33).

Where the instructions are missing (another architecture, or a processor that numba was told to assume), tables for
eight bytes at a time do the same at a tenth of the speed. The choice follows the target that numba compiles for, not
the machine: code for a target without an instruction would abort the process.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from tidelog.kernels.crc_tables import byte_tables, crc_by_tables
from tidelog.kernels.memory import load_i64, load_u8
from tidelog.kernels.runtime import inner, kernel

__all__ = ["crc32c", "crc32c_at", "crc32c_portable", "has_crc_instruction"]

_POLYNOMIAL = 0x82F63B78  # P without its highest term, bits reversed
_LANE = 256  # bytes of each of the three stretches


def has_crc_instruction() -> bool:
    """Whether kernels are compiled for a processor with the instructions that this needs."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and {"+sse4.2", "+pclmul"} <= set(features.split(","))


def _power_of_x(exponent: int) -> int:
    """x^exponent mod P, bits reversed: the highest of 32 bits is x^0."""
    power = 1 << 31
    for _ in range(exponent):
        power = power >> 1 ^ (_POLYNOMIAL if power & 1 else 0)
    return power


_OVER_ONE = _power_of_x(8 * _LANE - 33)
_OVER_TWO = _power_of_x(8 * 2 * _LANE - 33)
_OVER_THREE = _power_of_x(8 * 3 * _LANE - 33)


def _crc_step(name: str, bits: int, word: int) -> Callable[[int, int], int]:
    @intrinsic
    def step(typing_context: Any, crc: Any, data: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            state, chunk = ir.IntType(bits), ir.IntType(word)
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(state, [state, chunk]), name)
            crc, data = arguments
            if bits < 64:
                crc = builder.trunc(crc, state)
            if word < 64:
                data = builder.trunc(data, chunk)
            result = builder.call(function, [crc, data])
            return result if bits == 64 else builder.zext(result, ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    return cast(Callable[[int, int], int], step)


_crc_word = _crc_step("llvm.x86.sse42.crc32.64.64", 64, 64)
_crc_byte = _crc_step("llvm.x86.sse42.crc32.32.8", 32, 8)


@intrinsic
def _multiply_low(typing_context: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, first = ir.IntType(64), ir.IntType(32)(0)
        vector = ir.VectorType(word, 2)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector, vector, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )
        left, right = (builder.insert_element(ir.Constant(vector, [0, 0]), value, first) for value in arguments)
        return builder.extract_element(builder.call(function, [left, right, ir.IntType(8)(0)]), first)

    return types.int64(types.int64, types.int64), generate


_carryless = cast(Callable[[int, int], int], _multiply_low)  # the low 64 bits of a product of polynomials


@inner
def _crc32c_by_instruction(address: int, size: int) -> int:
    crc = 0xFFFFFFFF
    end = address + size
    while end - address >= 3 * _LANE:
        first = 0  # and not `crc`: the next stretches need not wait until these are joined
        second = 0
        third = 0
        for _ in range(_LANE // 8):  # a counted loop is unrolled whole; a while loop loses a quarter of the speed
            first = _crc_word(first, load_i64(address))
            second = _crc_word(second, load_i64(address + _LANE))
            third = _crc_word(third, load_i64(address + 2 * _LANE))
            address += 8
        joined = _carryless(crc, _OVER_THREE) ^ _carryless(first, _OVER_TWO) ^ _carryless(second, _OVER_ONE)
        crc = _crc_word(0, joined) ^ third
        address += 2 * _LANE
    while end - address >= 8:
        crc = _crc_word(crc, load_i64(address))
        address += 8
    while address < end:
        crc = _crc_byte(crc, load_u8(address))
        address += 1
    return crc ^ 0xFFFFFFFF


_BYTES = byte_tables(_POLYNOMIAL)


@inner
def _crc32c_by_tables(address: int, size: int) -> int:
    return crc_by_tables(address, size, _BYTES)


crc32c_at = _crc32c_by_instruction if has_crc_instruction() else _crc32c_by_tables


@kernel("int64(int64, int64)")
def crc32c(address: int, size: int) -> int:
    """CRC-32C of `size` bytes at `address`."""
    return crc32c_at(address, size)


@kernel("int64(int64, int64)")
def crc32c_portable(address: int, size: int) -> int:
    """The same by tables, which a processor without the instructions uses for everything."""
    return _crc32c_by_tables(address, size)
