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
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import llvmlite
import numba
from numba._dynfunc import make_function
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime.nrt import rtsys

from tidelog.errors import UnsupportedError
from tidelog.kernels.cache import CACHE_VARIABLE, cache_directory, kernel_sources, read_kept, write_kept
from tidelog.kernels.kept_code import KeptCode, pack, unpack

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

        return _path(self.name, directory, cpu_target.target_context.codegen()).exists()

    def compile(self) -> Callable[P, R]:
        """Load or compile the machine code now. Two threads may both do it; both results are right."""
        entry = self._entry = self._loaded() or self._compiled_now()
        return entry

    def _loaded(self) -> Callable[P, R] | None:
        """The function that Python calls, out of the file that keeps it."""
        directory = cache_directory()
        if directory is None:
            return None
        self._ensure_compiling()
        from numba.core.registry import cpu_target

        context = cpu_target.target_context
        payload = read_kept(_path(self.name, directory, context.codegen()))
        kept = None if payload is None else unpack(payload)
        return None if kept is None else self._linked(context, kept)

    def _linked(self, context: Any, kept: KeptCode) -> Callable[P, R]:
        """What numba does with a pickled result (CompileResult._rebuild), from names and object code alone."""
        with global_compiler_lock:
            rtsys.initialize(context)  # all that loading needs; numba would first import everything it can compile
            library = context.codegen().unserialize_library((kept.library, "object", (kept.code, kept.bitcode)))
            environments = [self._environment(name) for name in (kept.environment, *kept.others)]
            entry: Callable[P, R] = make_function(
                sys.modules[self._function.__module__],
                self._function.__name__,
                self.__doc__ or "",
                library.get_pointer_to_function(kept.entry),
                environments[0],
                (library, environments),  # kept alive with the function
            )
            for environment in environments:
                library.codegen.set_env(environment.env_name, environment)
        return entry

    def _environment(self, name: str) -> Any:
        """What the code of a function refers to beside itself: nothing, but numba wants to see it."""
        known = lookup_environment(name)
        if known is None:
            known = Environment._memo[name] = Environment(self._function.__globals__)
            known.env_name = name
        return known

    def _compiled_now(self) -> Callable[P, R]:
        dispatcher = self._dispatcher()
        dispatcher._cache = _KernelCache(self.name, cache_directory())
        dispatcher.compile(self.signature)
        dispatcher.disable_compile()
        (result,) = dispatcher.overloads.values()
        entry: Callable[P, R] = result.entry_point
        return entry

    def _ensure_compiling(self) -> None:
        if getattr(numba.config, "DISABLE_JIT", 0):
            raise UnsupportedError("NUMBA_DISABLE_JIT is set: kernels cannot run as Python, unset it")

    def _dispatcher(self, **more: bool) -> Any:
        """What numba makes of the function before it compiles it."""
        self._ensure_compiling()
        return _njit(self._function, **more)


class _KernelCache:
    """What numba's dispatcher asks of a cache, to be handed what it has compiled."""

    def __init__(self, name: str, directory: Path | None) -> None:
        self._name = name
        self._directory = directory

    def load_overload(self, signature: object, target_context: object) -> None:
        """There is nothing here: compile."""

    def save_overload(self, signature: object, result: Any) -> None:
        """Keep what was compiled, if there is a folder for it."""
        others = result._find_referenced_environments()
        # What a plain file cannot hold: Python's objects, and functions to be called before the code is.
        needs_more = result.reload_init or any(each.consts for each in (result.environment, *others))
        if self._directory is None or needs_more:
            return
        library, _, (code, bitcode) = result.library.serialize_using_object_code()
        described = result.fndesc
        names = tuple(each.env_name for each in others)
        kept = KeptCode(library, described.llvm_cpython_wrapper_name, described.env_name, names, code, bitcode)
        write_kept(_path(self._name, self._directory, result.codegen), pack(kept))


def _path(name: str, directory: Path, codegen: Any) -> Path:
    """The file in which a kernel is kept, as made for a processor."""
    key = hashlib.sha256(repr((_sources_digest(), codegen.magic_tuple())).encode())
    return directory / f"{name}-{key.hexdigest()[:24]}.kernel"


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
