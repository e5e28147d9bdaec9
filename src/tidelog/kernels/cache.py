"""The folder of compiled kernels, and the files in it.

Machine code is executed on trust, so the folder must belong to the user and be closed to others (mode 0700), and each
file carries its own digest. If there is no such folder (no home, a read-only disk, foreign ownership), kernels are
compiled again in each process; nothing fails and nothing is written.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_directory", "kernel_sources", "read_kept", "write_kept"]

CACHE_VARIABLE = "TIDELOG_KERNEL_CACHE"

_DIGEST_SIZE = 32


def read_kept(path: Path) -> bytes | None:
    """What a file of the folder holds; None if it is not there, not readable, or was cut off by a crash."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def write_kept(path: Path, payload: bytes) -> None:
    """Keep `payload` in a file of the folder, whole or not at all."""
    import tempfile  # which brings much along that reading does not need

    with suppress(OSError):  # a disk that filled up or turned read-only costs a compilation next time, nothing else
        file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115 - renamed when whole
        try:
            with file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)


def kernel_sources() -> Iterator[bytes]:
    """Names and texts of all modules that machine code is made from, in the same order everywhere."""
    from importlib.resources import files  # reads from a zip as well, as Spark ships packages

    yield from sorted(
        entry.name.encode() + b"\0" + entry.read_bytes()
        for package in (__package__, "tidelog.records")  # whose constants are compiled into the code
        for entry in files(package).iterdir()
        if entry.name.endswith(".py")
    )


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
