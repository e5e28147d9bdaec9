"""What kernels ask of the system: to read from a file that is open."""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["read_at"]

_DESCRIPTOR, _WORD = ir.IntType(32), ir.IntType(64)


@intrinsic
def _pread(typing_context: Any, descriptor: Any, address: Any, size: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_DESCRIPTOR, _WORD, _WORD, _WORD])
        pread = cgutils.get_or_insert_function(builder.module, kind, "pread")
        descriptor, *others = arguments
        return builder.call(pread, [builder.trunc(descriptor, _DESCRIPTOR), *others])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


# (descriptor, address, size, position): how many bytes were read to an address, -1 if the system refuses. Why it does
# is told to whoever reads the same bytes from Python.
read_at = cast(Callable[[int, int, int, int], int], _pread)
