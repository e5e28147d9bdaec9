"""The names on a disk, the newer names in memory, and what is left of those when the power goes.

Each directory has two tables, and between the two stands one list of changes for all directories. As ext4 and xfs keep
a journal, changes reach the disk in order: a crash leaves a beginning of the list. Syncing a directory carries the list
up to the last change in that directory; syncing a new file, or a new directory, up to its creation.

A disk without a journal leaves any part of the list, except that changes of one name, and of one file, stay in order.
There, syncing a directory carries the changes in it and those that they must not overtake; syncing a file carries none.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from tidelog.testing.disk_calls import refusal
from tidelog.testing.disk_image import FileNode

__all__ = ["DirectoryNode", "NameChange", "NameTree", "Node", "names_of"]

_LARGEST_NAME = 255  # bytes
_LARGEST_CHARACTER = 4


class DirectoryNode:
    """A directory without its name."""

    __slots__ = ("disk_entries", "entries", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.disk_entries: dict[str, Node] = {}
        self.modified_ms = modified_ms


Node = FileNode | DirectoryNode
Place = tuple[DirectoryNode, str]


class NameChange(NamedTuple):
    """A node gets its first name (no source), another one, or loses it (no target). It takes place whole or not."""

    node: Node
    source: Place | None
    target: Place | None

    def apply(self, entries_of: Callable[[DirectoryNode], dict[str, Node]]) -> None:
        """Make the change in one set of tables."""
        if self.source is not None:
            entries = entries_of(self.source[0])
            if entries.get(self.source[1]) is self.node:
                del entries[self.source[1]]
        if self.target is not None:
            entries_of(self.target[0])[self.target[1]] = self.node

    def creates(self, node: Node) -> bool:
        """Whether this gives a node its first name."""
        return self.node is node and self.source is None

    def touches(self, directory: DirectoryNode) -> bool:
        """Whether an entry of the directory is concerned."""
        return any(place is not None and place[0] is directory for place in (self.source, self.target))

    def keys(self) -> set[Node | Place]:
        """What it shares with the changes that must not overtake it."""
        return {self.node, *(place for place in (self.source, self.target) if place is not None)}


class NameTree:
    """All directories from the root down, and the changes that are not on the disk yet, oldest first."""

    __slots__ = ("is_ordered", "pending", "root")

    def __init__(self, root: DirectoryNode, *, is_ordered: bool) -> None:
        self.root = root
        self.is_ordered = is_ordered
        self.pending: list[NameChange] = []

    def find(self, path: str) -> Node | None:
        """What is at a path, if anything. A way through a file is an error."""
        if not path:
            return None
        node: Node | None = self.root
        for name in names_of(path):
            if not isinstance(node, DirectoryNode):
                if node is None:
                    return None
                raise refusal(path, errno.ENOTDIR)
            node = node.entries.get(name)
        return node

    def place(self, path: str, label: str) -> Place:
        """Where the name of a path is, or can be put. Errors speak of `label`."""
        *way, last = names_of(path) or [""]
        node: Node | None = self.root
        for name in way:
            node = node.entries.get(name) if isinstance(node, DirectoryNode) else node
        if not isinstance(node, DirectoryNode):
            raise refusal(label, errno.ENOTDIR if node else errno.ENOENT)
        if not last:
            raise refusal(label, errno.EBUSY if path else errno.ENOENT)
        return node, last

    def is_on_way(self, directory: Node, path: str) -> bool:
        """Whether a path leads through a directory."""
        node: Node | None = self.root
        for name in names_of(path):
            if node is directory:
                return True
            node = node.entries.get(name) if isinstance(node, DirectoryNode) else None
        return False

    def change(self, node: Node, source: Place | None, target: Place | None, now_ms: int) -> None:
        """Make a change in memory."""
        change = NameChange(node, source, target)
        change.apply(_entries)
        self.pending.append(change)
        for place in (source, target):
            if place is not None:
                place[0].modified_ms = now_ms

    def sync_directory(self, directory: DirectoryNode) -> None:
        """Carry the changes in a directory to the disk."""
        if self.is_ordered:
            self._sync_up_to(lambda change: change.touches(directory) or change.creates(directory))
            return
        needed: set[Node | Place] = set()
        synced: list[NameChange] = []
        left: list[NameChange] = []
        for change in reversed(self.pending):
            keys = change.keys()
            if change.touches(directory) or not needed.isdisjoint(keys):
                needed |= keys
                synced.append(change)
            else:
                left.append(change)
        for change in reversed(synced):
            change.apply(_disk_entries)
        self.pending = left[::-1]

    def sync_file(self, node: FileNode) -> None:
        """A file was synced. Where there is a journal, its creation is in it and has been carried too."""
        if self.is_ordered and self.pending:
            self._sync_up_to(lambda change: change.creates(node))

    def sync_all(self) -> None:
        """Carry everything to the disk, the contents of files too."""
        self._sync_up_to(lambda _: True)
        for node in _below(self.root):
            if isinstance(node, FileNode):
                node.sync()

    def _sync_up_to(self, is_wanted: Callable[[NameChange], bool]) -> None:
        last = max((index for index, change in enumerate(self.pending) if is_wanted(change)), default=-1)
        for change in self.pending[: last + 1]:
            change.apply(_disk_entries)
        del self.pending[: last + 1]

    def after_crash(self, rng: Random) -> NameTree:
        """What is on the disk when the power goes now: the names that are, or got there on their own, and the files."""
        tables: dict[DirectoryNode, dict[str, Node]] = {}

        def entries_of(directory: DirectoryNode) -> dict[str, Node]:
            if directory not in tables:
                tables[directory] = dict(directory.disk_entries)
            return tables[directory]

        def survivor_of(directory: DirectoryNode) -> DirectoryNode:
            survivor = DirectoryNode(directory.modified_ms)
            for name, node in sorted(entries_of(directory).items()):  # sorted: the same numbers, the same disk
                survivor.disk_entries[name] = node.after_crash(rng) if isinstance(node, FileNode) else survivor_of(node)
            survivor.entries = dict(survivor.disk_entries)
            return survivor

        for change in self._survivors(rng):
            change.apply(entries_of)
        return NameTree(survivor_of(self.root), is_ordered=self.is_ordered)

    def _survivors(self, rng: Random) -> Iterable[NameChange]:
        if self.is_ordered:
            return self.pending[: rng.randint(0, len(self.pending))]
        survivors: list[NameChange] = []
        overtaken: set[Node | Place] = set()
        for change in self.pending:
            keys = change.keys()
            if rng.random() < 0.5 and overtaken.isdisjoint(keys):
                survivors.append(change)
            else:
                overtaken |= keys
        return survivors

    def copy(self) -> NameTree:
        """The same tree once more, with the same things synced."""
        copies: dict[Node, Node] = {}

        def copy_of(node: Node) -> Node:
            if node not in copies:
                copies[node] = node.copy() if isinstance(node, FileNode) else directory_copy_of(node)
            return copies[node]

        def directory_copy_of(directory: DirectoryNode) -> DirectoryNode:
            copied = copies.get(directory)
            if not isinstance(copied, DirectoryNode):
                copied = copies[directory] = DirectoryNode(directory.modified_ms)
                copied.entries = {name: copy_of(node) for name, node in directory.entries.items()}
                copied.disk_entries = {name: copy_of(node) for name, node in directory.disk_entries.items()}
            return copied

        def place_copy_of(place: Place | None) -> Place | None:
            return None if place is None else (directory_copy_of(place[0]), place[1])

        tree = NameTree(directory_copy_of(self.root), is_ordered=self.is_ordered)
        tree.pending = [
            NameChange(copy_of(change.node), place_copy_of(change.source), place_copy_of(change.target))
            for change in self.pending
        ]
        return tree


def names_of(path: str) -> list[str]:
    """The parts of a path that can be one."""
    if "\0" in path:
        raise refusal(path, "embedded null byte")
    if len(path) * _LARGEST_CHARACTER > _LARGEST_NAME and any(
        len(name.encode("utf-8", "surrogatepass")) > _LARGEST_NAME for name in path.split("/")
    ):
        raise refusal(path, errno.ENAMETOOLONG)
    return [name for name in path.split("/") if name and name != "."]


def _below(directory: DirectoryNode) -> Iterable[Node]:
    for node in directory.entries.values():
        yield node
        if isinstance(node, DirectoryNode):
            yield from _below(node)


def _entries(directory: DirectoryNode) -> dict[str, Node]:
    return directory.entries


def _disk_entries(directory: DirectoryNode) -> dict[str, Node]:
    return directory.disk_entries
