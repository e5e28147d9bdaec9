"""How kernels are compiled, once per machine, and kept.

A kernel is a function over integers: addresses, sizes, numbers. It has one explicit signature, releases the GIL and
is compiled when it is first called, or ahead by `warm_up` (`tidelog warmup`). What was compiled is kept in a folder
that belongs to the user and to nobody else (see `cache`).

A file is named after the kernel and a key made of the sources of this package and of `tidelog.records`, the versions of
Python, numba and llvmlite, numba's settings, and the processor that the code was made for: a stale one is never found.

numba's own cache is not used: it lies beside the sources or in a place shared through an environment variable,
notices only changes of the file a function stands in, and raises at import time where it cannot write.
"""

import hashlib
import pickle
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import llvmlite
import numba
from numba.core import compiler, serialize
from numba.core.runtime.nrt import rtsys

from tidelog.errors import UnsupportedError
from tidelog.kernels.cache import CACHE_VARIABLE, cache_directory, kernel_sources, read_kept, write_kept

__all__ = ["CACHE_VARIABLE", "Kernel", "WarmUp", "cache_directory", "inlined", "inner", "kernel", "warm_up"]

P = ParamSpec("P")
R = TypeVar("R")

# numpy's rules for division: no branch to an exception that kernels, which check their divisors, can never take.
# Wrappers that nobody calls are not made: they would double the time of compilation.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

# What numba lets its user change about the code it makes.
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "DEBUG", "FULL_TRACEBACKS")

_registry: "list[Kernel[..., Any]]" = []


class WarmUp(NamedTuple):
    """What `warm_up` did."""

    kernels: int
    seconds: float
    cache_dir: Path | None


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels call. It is compiled into them, never called from Python."""
    return _njit(function, no_cpython_wrapper=True)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """An inner function so small and so hot that a call would cost more than what it does."""
    return _njit(function, no_cpython_wrapper=True, forceinline=True)


def _njit(function: Callable[P, R], **more: bool) -> Callable[P, R]:
    options: dict[str, Any] = {**_OPTIONS, **more}
    compiled: Callable[P, R] = numba.njit(**options)(function)
    return compiled


def kernel(signature: str) -> "Callable[[Callable[P, R]], Kernel[P, R]]":
    """A function that Python calls, compiled for one signature: `@kernel("int64(int64, int64)")`."""

    def decorate(function: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(function, signature)

    return decorate


class Kernel(Generic[P, R]):
    """A compiled function with one signature, compiled or loaded at its first call."""

    def __init__(self, function: Callable[P, R], signature: str) -> None:
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.signature = signature
        self.__doc__ = function.__doc__
        self._function = function
        self._entry: Callable[P, R] | None = None
        _registry.append(self)

    def __repr__(self) -> str:
        return f"Kernel({self.name}: {self.signature})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        entry = self._entry
        if entry is None:
            entry = self.compile()
        return entry(*args, **kwargs)

    @property
    def compiled(self) -> Callable[P, R]:
        """The machine code itself, for a caller that calls so often that it counts."""
        return self._entry or self.compile()

    def is_kept(self, directory: Path) -> bool:
        """Whether its machine code, for this machine, lies in a directory."""
        from numba.core.registry import cpu_target  # which takes its time

        return _KernelCache(self.name, directory).path_for(cpu_target.target_context.codegen()).exists()

    def compile(self) -> Callable[P, R]:
        """Load or compile the machine code now. Two threads may both do it; both results are right."""
        dispatcher = self._dispatcher()
        directory = cache_directory()
        if directory is not None:
            dispatcher._cache = _KernelCache(self.name, directory)
        dispatcher.compile(self.signature)
        dispatcher.disable_compile()
        entry: Callable[P, R] = dispatcher
        self._entry = entry
        return entry

    def _dispatcher(self, **more: bool) -> Any:
        """What numba makes of the function before it compiles it."""
        if getattr(numba.config, "DISABLE_JIT", 0):
            raise UnsupportedError("NUMBA_DISABLE_JIT is set: kernels cannot run as Python, unset it")
        return _njit(self._function, **more)


class _KernelCache:
    """What numba's dispatcher asks of a cache, over files that are checked before they are believed."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def load_overload(self, signature: object, target_context: Any) -> Any:
        # All that loading needs. numba would first import everything it can compile, a fifth of a second.
        rtsys.initialize(target_context)
        payload = read_kept(self.path_for(target_context.codegen()))
        if payload is None:
            return None
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(payload))

    def save_overload(self, signature: object, result: Any) -> None:
        write_kept(self.path_for(result.codegen), serialize.dumps(result._reduce()))

    def path_for(self, codegen: Any) -> Path:
        """The file in which it is kept, as made for a processor."""
        key = hashlib.sha256(repr((_sources_digest(), codegen.magic_tuple())).encode())
        return self._directory / f"{self._name}-{key.hexdigest()[:24]}.kernel"


@cache
def _sources_digest() -> str:
    """Names everything that the machine code depends on, except the processor."""
    settings = [getattr(numba.config, name) for name in _SETTINGS]
    digest = hashlib.sha256(repr((sys.version, numba.__version__, llvmlite.__version__, settings)).encode())
    for module in kernel_sources():
        digest.update(module)
    return digest.hexdigest()


def warm_up(report: Callable[[str, float], None] | None = None) -> WarmUp:
    """Compile or load every kernel. `report` is told each name and the seconds it took."""
    from tidelog.kernels import catalogue

    started = time.perf_counter()
    for one in catalogue.kernels():
        begun = time.perf_counter()
        one.compile()
        if report is not None:
            report(one.name, time.perf_counter() - begun)
    return WarmUp(len(_registry), time.perf_counter() - started, cache_directory())
