"""Paths of the local disk, resolved so that no other user decides where root writes.

A log directory belongs to the broker's user, and commands are run on it as root. Between two looks at a path that user
can put a symbolic link in the place of any part of it. So whatever writes or deletes names a file as two things: an
open descriptor of its directory, and a plain name in it that is never followed when it is a link (`dir_fd`,
O_NOFOLLOW). What a descriptor refers to cannot be exchanged any more.

    with parent_directory("/data/kafka-logs/orders-0/leader-epoch-checkpoint") as (name, directory):
        os.unlink(name, dir_fd=directory)

Links on the way to the directory are followed, as Kafka follows them: an entry of log.dirs may be a link, and a
partition directory too. Root follows only links that root has made (`PLANTED` says why). For every other user the
kernel checks the rights of that user, so `parent_directory` opens nothing and costs nothing.
"""

import errno
import os
import stat
from types import TracebackType

__all__ = [
    "PLANTED",
    "is_guarded",
    "open_directory",
    "parent_directory",
    "resolved_file",
    "resolved_place",
    "set_owner",
]

PLANTED = (
    "{link} is a symbolic link that uid {owner} made, and root does not follow it: run the command as that user, or "
    "replace the link by what it points to"
)
SHARED = (
    "uid {owner} owns it, another user than the owner of its directory, and it has {count} hard links; "
    "root does not open it: remove it from the directory, or run the command as the owner of the directory"
)

_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)  # needs no right to read the directory, where the system knows it
_LOOK = _PATH_ONLY | os.O_DIRECTORY
_MOST_LINKS = 40  # as Linux counts them


def is_guarded() -> bool:
    """Whether this process can write where the owner of a log directory cannot."""
    return os.geteuid() == 0


class parent_directory:
    """The name that a path ends in, and an open descriptor of the directory that it lies in.

    Without root's rights the whole path and None, which every call with `dir_fd` understands.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> tuple[str, int | None]:
        if not is_guarded():
            return self._path, None
        directory, _, name = self._path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            return self._path, None  # of such a path nothing can be written, renamed or removed
        self._descriptor = open_directory(directory or ("/" if self._path.startswith("/") else "."))
        return name, self._descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def open_directory(path: str) -> int:
    """A descriptor of a directory, to be used as `dir_fd` only. Root follows no link of another user on the way."""
    if not is_guarded():
        return os.open(path, _LOOK)
    descriptor = os.open(path, _LOOK)
    try:
        # No link was followed if the kernel has the directory under the same path. That is nearly always so.
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:
            return descriptor
    except OSError:  # no /proc
        pass
    os.close(descriptor)
    return _walk(path)


def _walk(path: str) -> int:
    """Open one part of a path after the other, and look at the owner of each link on the way."""
    pending = _parts(path)
    directory = os.open("/" if path.startswith("/") else ".", _LOOK)
    links = 0
    try:
        while pending:
            name = pending.pop()
            if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = _trusted_target(name, directory, called=name)
                pending += _parts(target)
                following = os.open("/", _LOOK) if target.startswith("/") else os.dup(directory)
            else:
                following = os.open(name, _LOOK | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = following
    except BaseException:
        os.close(directory)
        raise
    return directory


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _trusted_target(name: str, directory: int | None, *, called: str) -> str:
    """Where a link leads, if root has made it. Looked at before and after: it may be exchanged in between."""
    before = os.stat(name, dir_fd=directory, follow_symlinks=False)
    target = os.readlink(name, dir_fd=directory)
    after = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if before.st_uid != 0 or not os.path.samestat(before, after):
        raise ValueError(PLANTED.format(link=called, owner=before.st_uid))
    return target


def resolved_file(path: str, *, may_be_missing: bool = False) -> str:
    """The path of what a chain of links leads to. Root follows its own links only, and other users all of them."""
    for _ in range(_MOST_LINKS):
        try:
            target = _target_of(path)
        except (FileNotFoundError, NotADirectoryError):
            if not may_be_missing:
                raise
            return path
        if target is None:
            return path
        path = target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def resolved_place(path: str) -> str:
    """The same for a file that is to be written and may be missing; an absolute path.

    Open it through `parent_directory`, which looks at the way again.
    """
    if not is_guarded():
        return os.path.realpath(path)
    return resolved_file(os.path.join(os.getcwd(), path), may_be_missing=True)  # `abspath` would take "link/.." away


def _target_of(path: str) -> str | None:
    """Where a link leads; None if the path is no link."""
    with parent_directory(path) as (name, directory):
        if not stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return None
        target = _trusted_target(name, directory, called="it") if directory is not None else os.readlink(name)
    return os.path.join(os.path.dirname(path), target)


def ensure_not_shared(found: os.stat_result, directory: int | None) -> None:
    """Raise ValueError if a file that root is about to read or change may be another user's, under a second name.

    What root reads can end in a message or in a file that the owner of the directory can read.
    """
    if directory is not None and found.st_nlink > 1 and found.st_uid != os.fstat(directory).st_uid:
        raise ValueError(SHARED.format(owner=found.st_uid, count=found.st_nlink))


def set_owner(path: str, user: int, group: int, mode: int) -> None:
    """Give a file or a directory an owner (root alone can) and a mode (its owner can). A link is left as it is."""
    with parent_directory(path) as (name, directory):
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
        is_root = is_guarded()
        if not (stat.S_ISREG(now.st_mode) or stat.S_ISDIR(now.st_mode)) or not (is_root or os.geteuid() == now.st_uid):
            return
        is_other_owner = is_root and (now.st_uid, now.st_gid) != (user, group)
        if not is_other_owner and stat.S_IMODE(now.st_mode) == mode:
            return
        if not is_root:
            os.chmod(name, mode)  # the owner's own rights, whatever lies there by now
            return
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                ensure_not_shared(found, directory)
            if is_other_owner:
                os.fchown(descriptor, user, group)
            os.fchmod(descriptor, mode)  # after the owner: a change of owner takes set-id bits away
        finally:
            os.close(descriptor)
