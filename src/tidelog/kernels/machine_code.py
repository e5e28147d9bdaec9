"""Kernels whose machine code is kept as it is, and loaded without numba.

Importing numba and numpy takes half a second, longer than a command that reads a gigabyte may take. A kernel that
stands on its own, a function of one address to one number, needs neither once it has been compiled: its object code is
kept in a file, and llvmlite, which is small, links it in some milliseconds.

    kept("log_lines.write_lines")       the kernel, if this machine has compiled it before

`standalone` is how such a kernel is compiled.

The file is named after everything that the code depends on: the sources of this package and of `tidelog.records`, the
versions of Python, numba and llvmlite, numba's settings in the environment, and the processor.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, byref, c_int32, c_int64, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import llvmlite
from llvmlite import binding

from tidelog.kernels.cache import cache_directory, kernel_sources, read_kept, write_kept

__all__ = ["Entry", "LinkedKernel", "is_kept", "keep", "kept"]

Entry = Callable[[int], int]

# numba's own convention: a status, the result behind the first pointer, an exception behind the second.
_NATIVE = CFUNCTYPE(c_int32, POINTER(c_int64), POINTER(c_void_p), c_int64)


class LinkedKernel:
    """Machine code in memory. The GIL is released while it runs."""

    def __init__(self, symbol: str, code: bytes) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine()
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)  # owns the memory
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._native = _NATIVE(self._engine.get_function_address(symbol))

    def __call__(self, address: int) -> int:
        result = c_int64()
        status = self._native(byref(result), byref(c_void_p()), address)
        assert status == 0, "kernels raise no exceptions"
        return result.value


def kept(name: str) -> LinkedKernel | None:
    """The kernel of that name, out of the file that keeps it; None if there is none for this machine and version."""
    directory = cache_directory()
    content = None if directory is None else read_kept(_path(directory, name))
    if content is None:
        return None
    symbol, _, code = content.partition(b"\0")
    return LinkedKernel(symbol.decode(), code)


def is_kept(directory: Path, name: str) -> bool:
    """Whether a directory keeps the kernel of that name, for this machine and version."""
    return _path(directory, name).exists()


def keep(name: str, symbol: str, code: bytes) -> None:
    """Keep the object code of a kernel, if there is a folder for it."""
    directory = cache_directory()
    if directory is not None:
        write_kept(_path(directory, name), symbol.encode() + b"\0" + code)


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}-{_key()[:24]}.code"


@cache
def _key() -> str:
    """Names everything that the machine code depends on."""
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    processor = binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    depends_on = sys.version, _numba_version(), llvmlite.__version__, settings, processor
    digest = hashlib.sha256(repr(depends_on).encode())
    for source in kernel_sources():
        digest.update(source)
    return digest.hexdigest()


def _numba_version() -> str | None:
    """As numba's own file tells it: asking numba would import it."""
    spec = find_spec("numba")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")
