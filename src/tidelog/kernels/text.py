"""Text in kernels: numbers in decimal, and UTF-8 as Java prints it.

A writer is given the address to write at and gives back the address behind what it wrote. It may touch some bytes
more: a number takes up to 20 bytes, text up to three times its size, and wide stores want SLACK behind.

`tidelog.records.java.decode_utf8` is the readable text of what `put_utf8` does to broken sequences.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tidelog.kernels.memory import copy_16, copy_32, load_i64, load_u8, store_8, store_16, store_64
from tidelog.kernels.runtime import inlined, inner

__all__ = ["LARGEST_GROWTH", "put_decimal", "put_utf8"]

LARGEST_GROWTH = 3  # bytes of U+FFFD, which may stand for one byte that is no UTF-8

_EIGHT = 10**8
_ASCII_ZEROS = 0x3030303030303030
_HIGH_BITS = -0x7F7F7F7F7F7F7F80  # 0x8080808080808080: set in every byte that is not ASCII
_MINUS = ord("-")


@intrinsic
def _trailing_zero_bits(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate


@intrinsic
def _quotient(typing_context: Any, value: Any, divisor: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.udiv(arguments[0], arguments[1])

    return types.int64(types.int64, types.int64), generate


trailing_zero_bits = cast(Callable[[int], int], _trailing_zero_bits)
quotient = cast(Callable[[int, int], int], _quotient)  # of unsigned numbers: needs no look at signs


# -- numbers -----------------------------------------------------------------------------------------------------------


@inlined
def _eight_digits(value: int) -> int:
    """The digits of a number below 10^8, a byte each, the highest digit in the lowest byte.

    Halves side by side in one word: split into fours, into pairs, into single digits. A multiplication and a shift
    divide all lanes at once; 10486 / 2^20 is a hundredth and 103 / 2^10 a tenth, exactly enough for these lanes.
    """
    high = quotient(value, 10_000)
    fours = high | (value - 10_000 * high) << 32
    hundreds = fours * 10_486 >> 20 & 0x0000007F0000007F
    pairs = hundreds | (fours - 100 * hundreds) << 16
    tens = pairs * 103 >> 10 & 0x000F000F000F000F
    return tens | (pairs - 10 * tens) << 8


@inlined
def _put_leading(address: int, value: int) -> int:
    """A number below 10^8 without leading zeros."""
    digits = _eight_digits(value)
    unwanted = trailing_zero_bits(digits | 1 << 56) & 0x38  # the last digit stays, even a zero
    store_64(address, digits + _ASCII_ZEROS >> unwanted)
    return address + 8 - (unwanted >> 3)


@inlined
def _put_eight(address: int, value: int) -> int:
    store_64(address, _eight_digits(value) + _ASCII_ZEROS)
    return address + 8


@inner
def put_decimal(address: int, value: int) -> int:
    """Any 64-bit number, as Java prints a long."""
    if value < 0:
        store_8(address, _MINUS)
        address += 1
        value = -value  # the smallest number stays as it is: the division takes it for 2^63, which is right
    if 0 <= value < _EIGHT:
        return _put_leading(address, value)
    high = quotient(value, _EIGHT)
    highest = quotient(high, _EIGHT)
    if highest:
        address = _put_leading(address, highest)
        address = _put_eight(address, high - highest * _EIGHT)
    else:
        address = _put_leading(address, high)
    return _put_eight(address, value - high * _EIGHT)


# -- text --------------------------------------------------------------------------------------------------------------


@inner
def put_utf8(target: int, source: int, size: int) -> int:
    """Copy UTF-8 text, with U+FFFD for what is broken in it. SLACK bytes behind the source may be read.

    Nearly all text is ASCII, or begins so: it is copied in wide steps while the high bits are gathered.
    """
    high_bits = 0
    done = 0
    while size - done >= 32:
        copy_32(target + done, source + done)
        first = load_i64(source + done) | load_i64(source + done + 8)
        second = load_i64(source + done + 16) | load_i64(source + done + 24)
        high_bits |= first | second
        done += 32
    while size - done >= 8:
        word = load_i64(source + done)
        store_64(target + done, word)
        high_bits |= word
        done += 8
    word = load_i64(source + done)
    store_64(target + done, word)
    high_bits |= word & ~(-1 << (size - done << 3))
    if high_bits & _HIGH_BITS == 0:
        return target + size
    return _put_any(target, source, size)


@inner
def _put_any(target: int, source: int, size: int) -> int:
    """The same for text that is not all ASCII: words while they are, else character by character."""
    end = source + size
    while source < end:
        word = load_i64(source)
        store_64(target, word)
        ascii_bytes = trailing_zero_bits(word & _HIGH_BITS) >> 3
        if ascii_bytes > end - source:
            return target + end - source
        target += ascii_bytes
        source += ascii_bytes
        while source < end and load_u8(source) >= 0x80:
            length = _sound_character(source, end)
            if length > 0:
                copy_16(target, source)
                target += length
                source += length
            else:  # U+FFFD
                store_16(target, 0xBFEF)
                store_8(target + 2, 0xBD)
                target += 3
                source -= length
    return target


@inner
def _sound_character(source: int, end: int) -> int:
    """Bytes of the character that begins here, or, below zero, of the broken part that one U+FFFD stands for.

    The broken part is the longest beginning of a character that could have become one, at least a byte. Java counts an
    encoded surrogate (ED A0..BF 80..BF) as one part too.
    """
    lead = load_u8(source)
    if lead < 0xC2 or lead > 0xF4:
        return -1
    length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    lowest, highest = 0x80, 0xBF
    if lead == 0xE0:
        lowest = 0xA0
    elif lead == 0xF0:
        lowest = 0x90
    elif lead == 0xF4:
        highest = 0x8F
    for index in range(1, length):
        if index == end - source:
            return -index
        byte = load_u8(source + index)
        if byte < lowest or byte > highest:
            return -index
        lowest, highest = 0x80, 0xBF
    if lead == 0xED and load_u8(source + 1) >= 0xA0:
        return -3
    return length
