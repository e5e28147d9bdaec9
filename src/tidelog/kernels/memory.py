"""Memory by address, for kernels.

Every address, size and value is an int64: mixing signed and unsigned 64-bit numbers would silently give floats.
Narrow loads are zero-extended where their name says u, narrow stores truncate, `big_*` read and write in the order of
the wire.
Nothing here checks bounds; each kernel compares a length with what is left before it comes here.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidelog.kernels.runtime import inlined

__all__ = [
    "SLACK",
    "big_i16",
    "big_i32",
    "big_i64",
    "big_u32",
    "copy_bytes",
    "copy_roomy",
    "copy_wide",
    "int32_at",
    "little_u16",
    "little_u32",
    "load_i64",
    "load_u8",
    "opaque",
    "prefetch",
    "put_big_16",
    "put_big_32",
    "put_big_64",
    "put_int32",
    "put_word",
    "store_16",
    "store_32",
    "store_64",
    "store_8",
    "word_at",
]

_WORD = ir.IntType(64)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _load(bits: int, *, swap: bool = False, signed: bool = False) -> Callable[[int], int]:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], bits))
            value.align = 1
            if swap:
                value = builder.bswap(value)
            if bits == 64:
                return value
            return builder.sext(value, _WORD) if signed else builder.zext(value, _WORD)

        return types.int64(types.int64), generate

    return cast(Callable[[int], int], load)


def _element(builder: Any, base: Any, index: Any, bits: int) -> Any:
    return builder.gep(_pointer(builder, base, bits), [index])


def _load_element(bits: int) -> Callable[[int, int], int]:
    @intrinsic
    def load(typing_context: Any, base: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_element(builder, arguments[0], arguments[1], bits))
            value.align = 1
            return value if bits == 64 else builder.sext(value, _WORD)

        return types.int64(types.int64, types.int64), generate

    return cast(Callable[[int, int], int], load)


def _store_element(bits: int) -> Callable[[int, int, int], None]:
    @intrinsic
    def store(typing_context: Any, base: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            base, index, value = arguments
            narrow = value if bits == 64 else builder.trunc(value, ir.IntType(bits))
            builder.store(narrow, _element(builder, base, index, bits)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return cast(Callable[[int, int, int], None], store)


def _store(bits: int, *, swap: bool = False) -> Callable[[int, int], None]:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            narrow = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            if swap:
                narrow = builder.bswap(narrow)
            builder.store(narrow, _pointer(builder, arguments[0], bits)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return cast(Callable[[int, int], None], store)


load_u8 = _load(8)
little_u16 = _load(16)
little_u32 = _load(32)
load_i64 = _load(64)  # native order, which is little-endian wherever numba runs
big_i16 = _load(16, swap=True, signed=True)
big_i32 = _load(32, swap=True, signed=True)
big_u32 = _load(32, swap=True)
big_i64 = _load(64, swap=True)

# Elements of arrays: int64 words and int32s, by address of the array and index. One call instead of a multiplication,
# an addition and a load: it reads better and compiles faster.
word_at = _load_element(64)
int32_at = _load_element(32)
put_word = _store_element(64)
put_int32 = _store_element(32)

store_8 = _store(8)
store_16 = _store(16)
store_32 = _store(32)
store_64 = _store(64)
put_big_16 = _store(16, swap=True)
put_big_32 = _store(32, swap=True)
put_big_64 = _store(64, swap=True)


@intrinsic
def _memcpy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source, size = arguments
        cgutils.raw_memcpy(builder, _pointer(builder, target, 8), _pointer(builder, source, 8), size, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


copy_bytes = cast(Callable[[int, int, int], None], _memcpy)  # exactly `size` bytes that do not overlap


def _vector_copy(words: int) -> Callable[[int, int], None]:
    @intrinsic
    def copy(typing_context: Any, target: Any, source: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector = ir.VectorType(_WORD, words).as_pointer()
            value = builder.load(builder.inttoptr(arguments[1], vector))
            value.align = 1
            builder.store(value, builder.inttoptr(arguments[0], vector)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return cast(Callable[[int, int], None], copy)


copy_16 = _vector_copy(2)
copy_32 = _vector_copy(4)


@intrinsic
def _opaque(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.asm(ir.FunctionType(_WORD, [_WORD]), "", "=r,0", arguments, side_effect=False)

    return types.int64(types.int64), generate


opaque = cast(Callable[[int], int], _opaque)  # the same number, of which the compiler no longer knows where it is from


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag]), "llvm.prefetch.p0"
        )
        builder.call(function, [_pointer(builder, arguments[0], 8), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


prefetch = cast(Callable[[int], None], _prefetch)  # ask for a line of memory that is read soon; any address will do

SLACK = 96  # bytes that must follow what is copied or walked over: a copy may touch 63 of them, a walk 68
_STEP = 32
_LONGEST_STEPS = 2048  # above it the call of memcpy costs less than the steps


@inlined
def copy_roomy(target: int, source: int, size: int) -> None:
    """Copy `size` bytes where up to 63 more may be read behind the source and written behind the target.

    Whole steps of 32 bytes, the first without a question, are many times as fast as a loop over bytes or a call.
    """
    if size <= _LONGEST_STEPS:
        copy_32(target, source)
        done = _STEP
        while done < size:
            copy_32(target + done, source + done)
            copy_32(target + done + _STEP, source + done + _STEP)
            done += 2 * _STEP
    else:
        copy_bytes(target, source, size)


@inlined
def copy_wide(target: int, source: int, size: int, source_limit: int) -> None:
    """The same where only the target has room: wide steps while `source_limit`, the end of readable memory, is far."""
    if source_limit - source >= size + SLACK:
        copy_roomy(target, source, size)
    else:
        copy_bytes(target, source, size)
