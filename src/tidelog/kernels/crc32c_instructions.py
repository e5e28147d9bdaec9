"""The instructions that CRC-32C is made of, in kernels and in code that is written by hand; and their constants.

Checksums are remainders of polynomials modulo P, and bits stand in reverse order: the lowest bit of a word is its
highest term. The CRC instruction takes a checksum and eight bytes, adds them, and gives back that times x^32 mod P.

Moving a checksum over n bytes that follow it multiplies it by x^(8n) mod P: one carry-less multiplication by a
constant, and one CRC instruction that takes the product of 64 bits back to 32. That instruction multiplies by x^32
itself, and a product of reversed numbers has one x too many; hence the constant is x^(8n - 33).
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["POLYNOMIAL", "carryless", "crc_byte", "crc_word", "emit_carryless", "emit_crc_word", "over", "power_of_x"]

POLYNOMIAL = 0x82F63B78  # P without its highest term, bits reversed

_WORD = ir.IntType(64)
_PAIR = ir.VectorType(_WORD, 2)
_FIRST = ir.IntType(32)(0)


def power_of_x(exponent: int) -> int:
    """x^exponent mod P, bits reversed: the highest of 32 bits is x^0."""
    power = 1 << 31
    for _ in range(exponent):
        power = power >> 1 ^ (POLYNOMIAL if power & 1 else 0)
    return power


def over(size: int) -> int:
    """What a checksum is multiplied by, before one more CRC instruction, to be moved over so many bytes."""
    return power_of_x(8 * size - 33)


def _emit_crc(builder: Any, name: str, crc: Any, data: Any) -> Any:
    function_type = ir.FunctionType(crc.type, [crc.type, data.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [crc, data])


def emit_crc_word(builder: Any, crc: Any, word: Any) -> Any:
    """A checksum with eight more bytes."""
    return _emit_crc(builder, "llvm.x86.sse42.crc32.64.64", crc, word)


def emit_carryless(builder: Any, left: Any, right: Any) -> Any:
    """The low 64 bits of a product of polynomials."""
    function_type = ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)])
    multiply = cgutils.get_or_insert_function(builder.module, function_type, "llvm.x86.pclmulqdq")
    pairs = [builder.insert_element(ir.Constant(_PAIR, [0, 0]), word, _FIRST) for word in (left, right)]
    return builder.extract_element(builder.call(multiply, [*pairs, ir.IntType(8)(0)]), _FIRST)


@intrinsic
def _crc_word(typing_context: Any, crc: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit_crc_word(builder, *arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _crc_byte(typing_context: Any, crc: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        crc, byte = builder.trunc(arguments[0], ir.IntType(32)), builder.trunc(arguments[1], ir.IntType(8))
        return builder.zext(_emit_crc(builder, "llvm.x86.sse42.crc32.32.8", crc, byte), _WORD)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _carryless(typing_context: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit_carryless(builder, *arguments)

    return types.int64(types.int64, types.int64), generate


crc_word = cast(Callable[[int, int], int], _crc_word)
crc_byte = cast(Callable[[int, int], int], _crc_byte)
carryless = cast(Callable[[int, int], int], _carryless)
