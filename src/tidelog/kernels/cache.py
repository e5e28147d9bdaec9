"""The folder of compiled kernels, and the files in it.

Machine code is executed on trust, so only this user may have written it. The folder must belong to the user and be
closed to others (mode 0700), and others must not be able to put another folder in its place. If there is no such folder
(no home, a read-only disk, foreign ownership), kernels are compiled again in each process; nothing fails and nothing is
written.

All of this is looked at through descriptors, each time: a folder that is exchanged after the look is not the one that
is read. A file holds a digest, which tells one that a crash cut off, and bytes of a format that does nothing when it is
read (`kept_code`).
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_directory", "kernel_sources", "read_kept", "write_kept"]

CACHE_VARIABLE = "TIDELOG_KERNEL_CACHE"

_DIGEST_SIZE = 32
_LARGEST = 64 << 20  # of a file; a kernel has some hundred kilobytes
_OPENED = os.O_RDONLY | os.O_DIRECTORY


def read_kept(path: Path) -> bytes | None:
    """What a file of the folder holds; None if it is not there, not to be trusted, or was cut off by a crash."""
    try:
        with _folder(path.parent) as folder:
            descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or not _is_ours(found) or found.st_size > _LARGEST:
                return None
            content = file.read()
    except OSError:
        return None
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def write_kept(path: Path, payload: bytes) -> None:
    """Keep `payload` in a file of the folder, whole or not at all."""
    beside = f"{path.name}.{secrets.token_hex(8)}"
    # A disk that filled up or turned read-only costs a compilation next time, nothing else.
    with suppress(OSError), _folder(path.parent) as folder:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.rename(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(beside, dir_fd=folder)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """A descriptor of the folder. Raises PermissionError if it, or its place, is anybody else's."""
    parent = os.open(path.parent, _OPENED)
    try:
        place = os.fstat(parent)
        # Whoever can write to the parent can put another folder in its place; with a sticky bit only its owner can.
        if not _is_ours(place) and not (place.st_mode & stat.S_ISVTX and place.st_uid in (0, os.geteuid())):
            raise PermissionError(f"others can write to {path.parent}")
        folder = os.open(path.name, _OPENED | os.O_NOFOLLOW, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{path} is not private")
        yield folder
    finally:
        os.close(folder)


def _is_ours(found: os.stat_result) -> bool:
    """Whether nobody but this user, and root, can write to it."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


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
        directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not chosen:
            _close_to_others(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        with _folder(directory):
            return directory if os.access(directory, os.R_OK | os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # read-only, foreign, or no home at all
        return None


def _close_to_others(directory: Path) -> None:
    """Take the right to write to `~/.cache/tidelog` from others: with a umask of 002 the group has it."""
    found = directory.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o022:
        directory.chmod(stat.S_IMODE(found.st_mode) & ~0o022)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
