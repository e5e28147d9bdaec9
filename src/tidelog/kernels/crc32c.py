"""CRC-32C at memory speed.

x86 processors have an instruction for it that takes three cycles but can start every cycle, so three stretches of 256
bytes are summed side by side and then joined. Joining means moving a checksum over 256 or 512 zero bytes, which is
linear and therefore four table look-ups. Longer stretches would defeat the prefetcher.

Where the instruction is missing (another architecture, or a processor that numba was told to assume), tables for
eight bytes at a time do the same at a tenth of the speed. The choice follows the target that numba compiles for, not
the machine: code for a target without the instruction would abort the process.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from tidelog.kernels.crc_tables import byte_tables, crc_by_tables
from tidelog.kernels.memory import load_i64, load_u8
from tidelog.kernels.runtime import inner, kernel

__all__ = ["crc32c", "crc32c_at", "has_crc_instruction"]

_POLYNOMIAL = 0x82F63B78
_LANE = 256  # bytes of each of the three stretches


def has_crc_instruction() -> bool:
    """Whether kernels are compiled for a processor with the CRC-32C instruction."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+sse4.2" in features.split(",")


def _shift_tables(zeros: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """tables[k][b]: what byte k of a checksum, of value b, turns into after `zeros` zero bytes."""
    values = (np.arange(256)[None, :] << (8 * np.arange(4)[:, None])).astype(np.int64)
    for _ in range(zeros):
        values = values >> 8 ^ _BYTES[0][values & 0xFF]
    return values


_BYTES = byte_tables(_POLYNOMIAL)
_OVER_ONE = _shift_tables(_LANE)
_OVER_TWO = _shift_tables(2 * _LANE)


def _instruction(name: str, bits: int, word: int) -> Callable[[int, int], int]:
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


_crc_word = _instruction("llvm.x86.sse42.crc32.64.64", 64, 64)
_crc_byte = _instruction("llvm.x86.sse42.crc32.32.8", 32, 8)


@inner
def _join(first: int, second: int, third: int) -> int:
    """The checksum of three stretches, one behind the other, from the checksums of each."""
    crc = third
    for byte in range(4):
        crc ^= int(_OVER_TWO[byte, first >> 8 * byte & 0xFF]) ^ int(_OVER_ONE[byte, second >> 8 * byte & 0xFF])
    return crc


@inner
def _crc32c_by_instruction(address: int, size: int) -> int:
    crc = 0xFFFFFFFF
    end = address + size
    while end - address >= 3 * _LANE:
        second = 0
        third = 0
        for _ in range(_LANE // 8):  # a counted loop is unrolled whole; a while loop loses a quarter of the speed
            crc = _crc_word(crc, load_i64(address))
            second = _crc_word(second, load_i64(address + _LANE))
            third = _crc_word(third, load_i64(address + 2 * _LANE))
            address += 8
        crc = _join(crc, second, third)
        address += 2 * _LANE
    while end - address >= 8:
        crc = _crc_word(crc, load_i64(address))
        address += 8
    while address < end:
        crc = _crc_byte(crc, load_u8(address))
        address += 1
    return crc ^ 0xFFFFFFFF


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
    """The same by tables, which a processor without the instruction uses for everything."""
    return _crc32c_by_tables(address, size)
