"""How a kernel is compiled that `machine_code` can load without numba.

Such a kernel takes one address, of words that hold everything else, and gives back one number. Its machine code is the
same as that of any kernel, without the wrapper that Python's own calls go through: that would refer to numba.
"""

from pathlib import Path
from typing import Any

from tidelog.kernels.machine_code import Entry, LinkedKernel, is_kept, keep, kept
from tidelog.kernels.runtime import Kernel

__all__ = ["StandaloneKernel", "standalone"]

_SIGNATURE = "int64(int64)"


def standalone(function: Entry) -> "StandaloneKernel":
    """A kernel of one address."""
    return StandaloneKernel(function, _SIGNATURE)


class StandaloneKernel(Kernel[[int], int]):
    """A kernel whose machine code is kept as it is."""

    def is_kept(self, directory: Path) -> bool:
        """Whether its machine code, for this machine, lies in a directory."""
        return is_kept(directory, self.name)

    def compile(self) -> LinkedKernel:
        """Load or compile the machine code now."""
        entry = kept(self.name)
        if entry is None:
            caught = _Caught()
            dispatcher = self._dispatcher(no_cpython_wrapper=True)
            dispatcher._cache = caught
            dispatcher.compile(self.signature)
            keep(self.name, caught.symbol, caught.code)
            entry = LinkedKernel(caught.symbol, caught.code)
        self._entry = entry
        return entry


class _Caught:
    """What numba's dispatcher asks of a cache, to be handed what it has compiled."""

    symbol: str
    code: bytes  # an object file

    def load_overload(self, signature: object, target_context: object) -> None:
        """There is nothing here: compile."""

    def save_overload(self, signature: object, result: Any) -> None:
        self.symbol = result.fndesc.llvm_func_name
        _, _, (self.code, _) = result.library.serialize_using_object_code()
