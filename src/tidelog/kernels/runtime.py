"""How kernels are compiled, once per machine, and kept.

A kernel is a function over integers: addresses, sizes, numbers. It has one explicit signature, releases the GIL and
is compiled when it is first called, or ahead by `warm_up` (`tidelog warmup`). What was compiled is kept in a folder
that belongs to the user and to nobody else: machine code is executed on trust, so the folder must be owned by the
user and closed to others (mode 0700), and each file must carry its own digest. If there is no such folder (no home, a
read-only disk, foreign ownership), kernels are compiled again in each process; nothing fails and nothing is written.

A file is named after the kernel and a key made of the sources of this package and of `tidelog.records`, the versions of
Python, numba and llvmlite, numba's settings, and the processor that the code was made for: a stale one is never found.

numba's own cache is not used: it lies beside the sources or in a place shared through an environment variable,
notices only changes of the file a function stands in, and raises at import time where it cannot write.
"""

import hashlib
import os
import pickle
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import llvmlite
import numba
from numba.core import compiler, serialize
from numba.core.runtime.nrt import rtsys

from tidelog.errors import UnsupportedError

__all__ = ["CACHE_VARIABLE", "Kernel", "WarmUp", "cache_directory", "inlined", "inner", "kernel", "warm_up"]

P = ParamSpec("P")
R = TypeVar("R")

CACHE_VARIABLE = "TIDELOG_KERNEL_CACHE"

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

    def compile(self) -> Callable[P, R]:
        """Load or compile the machine code now. Two threads may both do it; both results are right."""
        if getattr(numba.config, "DISABLE_JIT", 0):
            raise UnsupportedError("NUMBA_DISABLE_JIT is set: kernels cannot run as Python, unset it")
        dispatcher: Any = _njit(self._function)
        directory = cache_directory()
        if directory is not None:
            dispatcher._cache = _KernelCache(self.name, directory)
        dispatcher.compile(self.signature)
        dispatcher.disable_compile()
        entry: Callable[P, R] = dispatcher
        self._entry = entry
        return entry


class _KernelCache:
    """What numba's dispatcher asks of a cache, over files that are checked before they are believed."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory

    def load_overload(self, signature: object, target_context: Any) -> Any:
        # All that loading needs. numba would first import everything it can compile, a fifth of a second.
        rtsys.initialize(target_context)
        try:
            content = self._path(target_context.codegen()).read_bytes()
        except OSError:  # not compiled yet, or not readable: compile
            return None
        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:  # cut off by a full disk or a crash: compile again
            return None
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(payload))

    def save_overload(self, signature: object, result: Any) -> None:
        payload = serialize.dumps(result._reduce())
        with suppress(OSError):  # a disk that filled up or turned read-only costs a compilation next time, nothing else
            file = tempfile.NamedTemporaryFile(dir=self._directory, delete=False)  # noqa: SIM115 - renamed when whole
            try:
                with file:
                    file.write(hashlib.sha256(payload).digest() + payload)
                os.replace(file.name, self._path(result.codegen))
            except OSError:
                os.unlink(file.name)

    def _path(self, codegen: Any) -> Path:
        key = hashlib.sha256(repr((_sources_digest(), codegen.magic_tuple())).encode())
        return self._directory / f"{self._name}-{key.hexdigest()[:24]}.kernel"


@cache
def _sources_digest() -> str:
    """Names everything that the machine code depends on, except the processor."""
    settings = [getattr(numba.config, name) for name in _SETTINGS]
    digest = hashlib.sha256(repr((sys.version, numba.__version__, llvmlite.__version__, settings)).encode())
    for module in sorted(_kernel_sources()):
        digest.update(module)
    return digest.hexdigest()


def _kernel_sources() -> list[bytes]:
    from importlib.resources import files  # reads from a zip as well, as Spark ships packages

    return [
        entry.name.encode() + b"\0" + entry.read_bytes()
        for package in (__package__, "tidelog.records")  # whose constants are compiled into the code
        for entry in files(package).iterdir()
        if entry.name.endswith(".py")
    ]


@cache
def cache_directory() -> Path | None:
    """The folder of compiled kernels, made if need be, or None where there is no trustworthy one.

    `$TIDELOG_KERNEL_CACHE`, else `tidelog/kernels` in `$XDG_CACHE_HOME` or `~/.cache`.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        directory = Path(chosen) if chosen else _user_cache() / "tidelog" / "kernels"
        if not directory.is_absolute():
            return None
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        status, parent = directory.lstat(), directory.parent.stat()
    except (OSError, RuntimeError):  # read-only, or no home at all
        return None
    is_private = (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and stat.S_IMODE(status.st_mode) & 0o077 == 0
        and parent.st_uid in (0, os.geteuid())  # whoever owns the parent could put another folder in its place
    )
    return directory if is_private and os.access(directory, os.R_OK | os.W_OK | os.X_OK) else None


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


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
