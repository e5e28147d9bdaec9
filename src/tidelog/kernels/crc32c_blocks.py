"""CRC-32C of blocks of 576 bytes, by two units of the processor at the same time.

The CRC instruction is as busy as it can be with three stretches side by side, eight bytes in a cycle, while the unit
for carry-less multiplication has nothing to do. So a block is

    192 bytes that are folded, six vectors of 32 bytes   |   three stretches of 128 bytes for the CRC instruction

To fold is to move bytes over others that follow, and add them there. A vector holds two numbers of 128 bits, each of
which becomes, moved over n bytes, two products: its first half times x^(8n + 64) mod P and its second half times
x^(8n) mod P. That keeps what the checksum will be, in 128 bits again. Two vectors take turns, so that one need not wait
for the other: each is folded into the vector after the next, and at the end of the stretch, over a longer distance but
with no more work, into that of the next block. Only behind the last block the two become one, whose 32 bytes have the
checksum of all that was folded.

The sizes are those that were fastest on a Zen 3; with four vectors beside such stretches, or eight, it is slower. It is
written as LLVM's instructions because numba has no variables for vectors.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidelog.kernels.crc32c_instructions import emit_carryless, emit_crc_word, over

__all__ = ["BLOCK", "crc_of_blocks"]

_LANE = 128  # bytes of each of the three stretches
_VECTOR = 32
_VECTORS = 6
_TURNS = 2
_FOLDED = _VECTORS * _VECTOR
BLOCK = _FOLDED + 3 * _LANE

_WORD = ir.IntType(64)
_FOUR = ir.VectorType(_WORD, 4)
_FIRST_HALVES, _SECOND_HALVES = 0x00, 0x11  # of both numbers in a vector, and of the constants


def _distance(size: int) -> Any:
    """What both numbers of a vector are multiplied by to be moved over so many bytes: `over`, without a CRC behind."""
    return ir.Constant(_FOUR, 2 * [over(size + 8), over(size)])


_TO_NEXT_TURN = _distance(_TURNS * _VECTOR)
_TO_NEXT_BLOCK = _distance(BLOCK - _FOLDED + _TURNS * _VECTOR)
_TO_NEXT_VECTOR = _distance(_VECTOR)


class _Writer:
    """Writes the instructions; a value is one of LLVM's."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        function_type = ir.FunctionType(_FOUR, [_FOUR, _FOUR, ir.IntType(8)])
        self._multiply = cgutils.get_or_insert_function(builder.module, function_type, "llvm.x86.pclmulqdq.256")

    def load(self, address: Any, offset: int, kind: Any) -> Any:
        place = self._builder.add(address, _WORD(offset))
        value = self._builder.load(self._builder.inttoptr(place, kind.as_pointer()))
        value.align = 1
        return value

    def fold(self, vector: Any, distance: Any, behind: Any) -> Any:
        first, second = (
            self._builder.call(self._multiply, [vector, distance, ir.IntType(8)(halves)])
            for halves in (_FIRST_HALVES, _SECOND_HALVES)
        )
        return self._builder.xor(self._builder.xor(first, behind), second)

    def block(self, address: Any, crc: Any, folded: list[Any]) -> tuple[Any, list[Any]]:
        """The checksum of all stretches so far, and what has been folded, with one more block."""
        folded = list(folded)
        lanes = [_WORD(0)] * 3
        steps = _LANE // 8
        for step in range(steps):
            for vector in range(step * _VECTORS // steps, (step + 1) * _VECTORS // steps):
                turn = vector % _TURNS
                distance = _TO_NEXT_BLOCK if vector < _TURNS else _TO_NEXT_TURN
                folded[turn] = self.fold(folded[turn], distance, self.load(address, vector * _VECTOR, _FOUR))
            for lane in range(3):
                word = self.load(address, _FOLDED + lane * _LANE + step * 8, _WORD)
                lanes[lane] = emit_crc_word(self._builder, lanes[lane], word)
        moved = self.moved((crc, BLOCK), (lanes[0], 2 * _LANE), (lanes[1], _LANE))
        return self._builder.xor(moved, lanes[2]), folded

    def moved(self, *checksums: tuple[Any, int]) -> Any:
        """The sum of checksums, each moved over so many bytes."""
        total = _WORD(0)
        for crc, size in checksums:
            total = self._builder.xor(total, emit_carryless(self._builder, crc, _WORD(over(size))))
        return emit_crc_word(self._builder, _WORD(0), total)

    def checksum(self, vector: Any) -> Any:
        crc = _WORD(0)
        for index in range(4):
            crc = emit_crc_word(self._builder, crc, self._builder.extract_element(vector, ir.IntType(32)(index)))
        return crc


@intrinsic
def _crc_of_blocks(typing_context: Any, crc: Any, address: Any, blocks: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        writer = _Writer(builder)
        start, address, blocks = arguments
        crc = cgutils.alloca_once_value(builder, start)
        folded = [cgutils.alloca_once_value(builder, ir.Constant(_FOUR, [0] * 4)) for _ in range(_TURNS)]
        with cgutils.for_range(builder, blocks) as loop:
            here = builder.add(address, builder.mul(loop.index, _WORD(BLOCK)))
            values = writer.block(here, builder.load(crc), [builder.load(vector) for vector in folded])
            builder.store(values[0], crc)
            for vector, value in zip(folded, values[1], strict=True):
                builder.store(value, vector)
        first, second = (builder.load(vector) for vector in folded)
        of_folded = writer.checksum(writer.fold(first, _TO_NEXT_VECTOR, second))
        return builder.xor(builder.load(crc), writer.moved((of_folded, 3 * _LANE)))

    return types.int64(types.int64, types.int64, types.int64), generate


# The checksum `crc` with so many blocks at an address behind it.
crc_of_blocks = cast(Callable[[int, int, int], int], _crc_of_blocks)
