"""A disk in memory whose power can be cut at any call.

    disk = SimulatedFileSystem()
    disk.cut_at(17)  # the 17th call that changes something is the last
    try:
        work_on(disk)
    except PowerLost:
        pass
    check(disk.after_crash(Random(1)))

Until the cut it behaves as LocalFileSystem does, errors included. What a crash leaves of contents is told in
`disk_image`, of names in `disk_names`: what was synced is there, the rest is lost, kept, torn or out of order, as the
random numbers say. Run the work once to learn its number of `calls`, then cut at each of them.

Calls that change something are numbered from 1: create, write, resize, sync, rename, remove, make directory, remove
directory, set modified and sync directory. Making or removing several directories or files at once counts each. The
call that is cut may have taken effect, in part too, or not; those after it do nothing but raise.
"""

import builtins
import errno
import threading
from collections.abc import Container, Generator
from random import Random
from typing import Self

from tidelog.errors import LockedError, StorageError
from tidelog.log.clock import Clock, ManualClock
from tidelog.log.files import (
    Creation,
    FileLock,
    FileStat,
    FileSystem,
    ReadFile,
    ReadFileSystem,
    WriteFile,
    join,
    read_whole,
)
from tidelog.log.local_files import LocalFileSystem
from tidelog.records.varint import Buffer
from tidelog.testing.disk_calls import NEVER, NO_SPACE, Calls, Fault, PowerLost, refusal
from tidelog.testing.disk_image import FileNode
from tidelog.testing.disk_names import DirectoryNode, NameTree, Node, names_of

__all__ = ["PowerLost", "SimulatedFile", "SimulatedFileSystem", "SimulatedReadFile"]

_LARGEST_FILE = 1 << 34  # what a test can still hold in memory
_LARGEST_POSITION = (1 << 63) - 1


class SimulatedReadFile:
    """A file that is open for reading."""

    __slots__ = ("_disk", "_node", "path")

    def __init__(self, disk: "SimulatedFileSystem", path: str, node: FileNode) -> None:
        self._disk = disk
        self._node: FileNode | None = node
        self.path = path

    def _open_node(self) -> FileNode:
        if self._node is None:
            raise refusal(self.path, errno.EBADF)
        return self._node

    @property
    def size(self) -> int:
        return self._open_node().size

    @property
    def descriptor(self) -> int | None:
        return None

    def read(self, position: int, size: int) -> bytes:
        node = self._open_node()
        if self._disk._calls.faults:
            self._disk._calls.check_read("read", self.path)
        if position < 0 or size < 0 or position > _LARGEST_POSITION:
            raise refusal(self.path, errno.EINVAL)
        return node.read(position, size)

    def read_into(self, position: int, target: memoryview) -> int:
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._node = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class SimulatedFile(SimulatedReadFile):
    """A file that is open for reading and writing."""

    __slots__ = ()

    def write_at(self, position: int, data: Buffer) -> None:
        node = self._open_node()
        if not 0 <= position < _LARGEST_FILE:
            raise refusal(self.path, errno.EINVAL if position < 0 else errno.EFBIG)
        disk = self._disk
        written = bytes(data)
        with disk._mutex:
            # Calls.begin, written out: this is the path that campaigns are made of.
            calls = disk._calls
            calls.number += 1
            calls.events.append((calls.number, "write", self.path, len(written), "at", position))
            is_last = calls.number >= calls.watched_from and calls.watch(
                "write", self.path, lambda: node.write(position, written[: len(written) // 2])
            )
            node.write(position, written)
            node.modified_ms = disk._clock.now_ms()
        if is_last:
            raise PowerLost

    def resize(self, size: int) -> None:
        node = self._open_node()
        if not 0 <= size <= _LARGEST_POSITION:
            raise refusal(self.path, errno.EINVAL)
        with self._disk._mutex:
            is_last = self._disk._calls.begin("resize", self.path, "to", size)
            node.resize(size)
            node.modified_ms = self._disk._clock.now_ms()
        if is_last:
            raise PowerLost

    def sync(self) -> None:
        node = self._open_node()
        with self._disk._mutex:
            if self._disk._calls.begin("sync", self.path):
                raise PowerLost
            node.sync()
            self._disk._tree.sync_file(node)


class SimulatedFileSystem:
    """Files in memory, over a disk that is behind.

    A relative path begins at the root, as an absolute one does. `unordered_directories` takes the journal of ext4 and
    xfs away: names reach the disk in any order, and only `sync_directory` waits for them. The seed is for crashes
    without random numbers of their own.
    """

    def __init__(self, clock: Clock | None = None, *, seed: int = 0, unordered_directories: bool = False) -> None:
        self._clock = ManualClock() if clock is None else clock
        self._random = Random(seed)
        self._tree = NameTree(DirectoryNode(self._clock.now_ms()), is_ordered=not unordered_directories)
        self._calls = Calls()
        self._locked: dict[Node, int] = {}  # how many share it
        self._mutex = threading.Lock()

    # The levers.

    @property
    def calls(self) -> int:
        """How many calls have changed something."""
        return self._calls.number

    @property
    def journal(self) -> builtins.list[str]:
        """The last calls that changed something, in words."""
        return [" ".join(map(str, event)) for event in self._calls.events]

    def cut_at(self, call: int | None) -> None:
        """Let the power go with this call, counted as `calls` does. None: it stays."""
        self._calls.cut_at(NEVER if call is None else call)

    def fail(
        self,
        calls: Container[int] | None = None,
        error: str = NO_SPACE,
        *,
        operation: str = "*",
        path: str = "*",
        times: int = NEVER,
        partly: bool = False,
    ) -> None:
        """Let the calls that match raise StorageError and have no effect, until `heal`.

        `operation` and `path` are patterns with `*`. Operations are called as `journal` calls them; read, open, list
        and stat, which change nothing and have no number, can fail too. `partly`: a write leaves its first half, as on
        a disk that fills up.
        """
        self._calls.add_fault(Fault(calls, error, operation, path, times, partly))

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._calls.heal()

    def sync_all(self) -> None:
        """Carry everything to the disk, uncounted: for what a test has before it begins."""
        with self._mutex:
            self._tree.sync_all()

    def after_crash(self, rng: Random | None = None) -> "SimulatedFileSystem":
        """Another file system, as the disk is when the power comes back. This one stays as it is."""
        with self._mutex:
            return self._with_tree(self._tree.after_crash(self._random if rng is None else rng))

    def copy(self) -> "SimulatedFileSystem":
        """The same files once more, synced or not, as another process finds them: no lock, no cut, no fault."""
        with self._mutex:
            return self._with_tree(self._tree.copy())

    def _with_tree(self, tree: NameTree) -> "SimulatedFileSystem":
        other = SimulatedFileSystem(self._clock, unordered_directories=not tree.is_ordered)
        other._random.setstate(self._random.getstate())
        other._tree = tree
        return other

    @classmethod
    def from_directory(
        cls,
        path: str,
        at: str = "/",
        clock: Clock | None = None,
        *,
        seed: int = 0,
        unordered_directories: bool = False,
    ) -> Self:
        """A disk with the files of a directory of the local disk, synced."""
        disk = cls(clock, seed=seed, unordered_directories=unordered_directories)
        _copy_tree(LocalFileSystem(), path, disk, at)
        disk.sync_all()
        disk._calls = Calls()
        return disk

    def to_directory(self, path: str, source: str = "/") -> None:
        """Store the files, as they are in memory, on the local disk."""
        _copy_tree(self, source, LocalFileSystem(), path)

    # What a FileSystem does.

    def list(self, directory: str) -> builtins.list[str]:
        self._check_read("list", directory)
        node = self._tree.find(directory)
        if not isinstance(node, DirectoryNode):
            raise refusal(directory, errno.ENOTDIR if node else errno.ENOENT)
        return sorted(node.entries)

    def stat(self, path: str) -> FileStat | None:
        self._check_read("stat", path)
        try:
            node = self._tree.find(path)
        except StorageError as error:
            if isinstance(error.__cause__, NotADirectoryError):
                return None
            raise
        if node is None:
            return None
        if isinstance(node, DirectoryNode):
            return FileStat(0, node.modified_ms, is_directory=True)
        return FileStat(node.size, node.modified_ms)

    def open(self, path: str) -> ReadFile:
        self._check_read("open", path)
        node = self._tree.find(path)
        if not isinstance(node, FileNode):
            raise refusal(path, errno.EISDIR if node else errno.ENOENT)
        return SimulatedReadFile(self, path, node)

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        self._check_read("open", path)
        with self._mutex:
            if create == "new" and self._tree.find(path) is not None:
                raise refusal(path, errno.EEXIST)
            node = self._find_or_create(path) if create else self._tree.find(path)
        if not isinstance(node, FileNode):
            raise refusal(path, errno.EISDIR if node else errno.ENOENT)
        return SimulatedFile(self, path, node)

    def rename(self, source: str, target: str) -> None:
        both = f"{source} to {target}"
        with self._mutex:
            from_place = self._tree.place(source, both)
            to_place = self._tree.place(target, both)
            node = from_place[0].entries.get(from_place[1])
            replaced = to_place[0].entries.get(to_place[1])
            if node is None:
                raise refusal(both, errno.ENOENT)
            if node is not replaced and self._tree.is_on_way(node, target):
                raise refusal(both, errno.EINVAL)
            if isinstance(node, DirectoryNode) and isinstance(replaced, FileNode):
                raise refusal(both, errno.ENOTDIR)
            if isinstance(node, FileNode) and isinstance(replaced, DirectoryNode):
                raise refusal(both, errno.EISDIR)
            if isinstance(replaced, DirectoryNode) and replaced is not node and replaced.entries:
                raise refusal(both, errno.ENOTEMPTY)
            is_last = self._calls.begin("rename", source, "to", target)
            if replaced is not node:
                self._tree.change(node, from_place, to_place, self._clock.now_ms())
        if is_last:
            raise PowerLost

    def remove(self, path: str) -> bool:
        with self._mutex:
            node = self._tree.find(path)
            if isinstance(node, DirectoryNode):
                raise refusal(path, errno.EISDIR)
            if node is not None:
                self._remove("remove", path, node)
        return node is not None

    def make_directory(self, path: str) -> None:
        with self._mutex:
            directory = self._tree.root
            names = names_of(path)
            for depth, name in enumerate(names, 1):
                node = directory.entries.get(name)
                if isinstance(node, FileNode):
                    raise refusal(path, errno.EEXIST if depth == len(names) else errno.ENOTDIR)
                if node is None:
                    is_last = self._calls.begin("make_directory", "/" + "/".join(names[:depth]))
                    node = DirectoryNode(self._clock.now_ms())
                    self._tree.change(node, None, (directory, name), self._clock.now_ms())
                    if is_last:
                        raise PowerLost
                directory = node

    def remove_directory(self, path: str) -> bool:
        with self._mutex:
            node = self._tree.find(path)
            if isinstance(node, FileNode):
                raise refusal(path, errno.ENOTDIR)
            if node is not None:
                self._remove_tree(path, node)
        return node is not None

    def remove_in_steps(self, path: str) -> Generator[None, None, bool]:
        found = self.stat(path)
        for name in self.list(path) if found is not None else ():
            child = self.stat(join(path, name))
            if child is not None and not child.is_directory:
                self.remove(join(path, name))
                yield
        return self.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        with self._mutex:
            node = self._tree.find(path)
            if node is None:
                raise refusal(path, errno.ENOENT)
            is_last = self._calls.begin("set_modified", path, "to", modified_ms)
            node.modified_ms = modified_ms
        if is_last:
            raise PowerLost

    def sync_directory(self, path: str) -> None:
        with self._mutex:
            node = self._tree.find(path)
            if isinstance(node, FileNode):
                raise refusal(path, errno.ENOTDIR)
            if node is not None:
                if self._calls.begin("sync_directory", path):
                    raise PowerLost
                self._tree.sync_directory(node)

    def lock(self, path: str, *, shared: bool = False) -> FileLock:
        with self._mutex:
            node = self._find_or_create(path)
            shares = self._locked.get(node, 0)
            if shares and not (shared and shares > 0):
                raise LockedError(f"{path}: locked")
            self._locked[node] = shares + 1 if shared else _NOT_SHARED
        return _Lock(self._locked, node)

    # The tree.

    def _check_read(self, operation: str, path: str) -> None:
        if self._calls.faults:
            self._calls.check_read(operation, path)

    def _find_or_create(self, path: str) -> Node:
        node = self._tree.find(path)
        if node is None:
            place = self._tree.place(path, path)
            is_last = self._calls.begin("create", path)
            node = FileNode(self._clock.now_ms())
            self._tree.change(node, None, place, self._clock.now_ms())
            if is_last:
                raise PowerLost
        return node

    def _remove(self, operation: str, path: str, node: Node) -> None:
        place = self._tree.place(path, path)
        is_last = self._calls.begin(operation, path)
        self._tree.change(node, place, None, self._clock.now_ms())
        if is_last:
            raise PowerLost

    def _remove_tree(self, path: str, directory: DirectoryNode) -> None:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, DirectoryNode):
                self._remove_tree(join(path, name), node)
            else:
                self._remove("remove", join(path, name), node)
        self._remove("remove_directory", path, directory)


_NOT_SHARED = -1


class _Lock:
    """A lock on a node, or a share of one, for as long as the node is in the map."""

    __slots__ = ("_locked", "_node")

    def __init__(self, locked: dict[Node, int], node: Node) -> None:
        self._locked = locked
        self._node: Node | None = node

    def release(self) -> None:
        if self._node is not None:
            shares = self._locked.pop(self._node, 0)
            if shares > 1:
                self._locked[self._node] = shares - 1
            self._node = None


def _copy_tree(source: ReadFileSystem, path: str, target: FileSystem, at: str) -> None:
    target.make_directory(at)
    for name in source.list(path):
        found = source.stat(join(path, name))
        if found is None:
            continue  # gone since the directory was listed
        if found.is_directory:
            _copy_tree(source, join(path, name), target, join(at, name))
            continue
        file = target.open_write(join(at, name))
        file.resize(0)
        file.write_at(0, read_whole(source, join(path, name)))
        file.close()
        target.set_modified(join(at, name), found.modified_ms)
