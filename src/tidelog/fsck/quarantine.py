"""Where a repair keeps what it takes out: `<root>.tidelog/<time>/`, beside the root, never in it.

    kafka-logs.tidelog/20261116T091500Z/
        manifest.jsonl                                         one line for each piece, written before the piece goes
        orders-0/00000000000000000000.log@16384+4096           the bytes from 16384 on, 4096 of them
        orders-0/00000000000000000042.snapshot                 a whole file

A line of the manifest names the file, the range of bytes, the offsets where they are known, the SHA-256 of the bytes
and why they were taken out, and by which code. Offsets that are missing from a log because of a repair are looked up
here by the next check.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.errors import CorruptionError
from tidelog.log.files import FileSystem, ReadFile, ReadFileSystem, join, opened, parent_of, read_whole

__all__ = ["MANIFEST", "Quarantine", "explained_offsets", "quarantine_of"]

MANIFEST = "manifest.jsonl"
_CHUNK = 4 << 20


def quarantine_of(root: str) -> str:
    """Where the quarantine of a root lies by default."""
    return f"{root.rstrip('/')}.tidelog"


def explained_offsets(fs: ReadFileSystem, directory: str, root: str) -> Mapping[str, Sequence[tuple[int, int]]]:
    """The offsets that repairs of a root have taken out, by the name of the partition directory."""
    found: dict[str, list[tuple[int, int]]] = {}
    stat = fs.stat(directory)
    if stat is None or not stat.is_directory:
        return found
    for name in fs.list(directory):
        path = join(join(directory, name), MANIFEST)
        if fs.stat(path) is None:
            continue
        for line in read_whole(fs, path).splitlines():
            entry = _entry(line)
            missing = entry.get("missing_offsets")
            if missing is not None and entry.get("root") == root:
                found.setdefault(str(entry.get("partition_directory")), []).append((int(missing[0]), int(missing[1])))
    return found


def _entry(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:  # torn by a crash: the piece it was to name has not been taken out
        return {}
    return value if isinstance(value, dict) else {}


class Quarantine:
    """One repair's part of the quarantine. Nothing is created before something is put in."""

    def __init__(self, fs: FileSystem, directory: str, root: str, stamp: str) -> None:
        self.path = join(directory.rstrip("/"), stamp)
        self.pieces = 0
        self.bytes = 0
        self._fs = fs
        self._root = root
        self._end = 0  # of the manifest

    @property
    def is_used(self) -> bool:
        """Whether something was put in or written down."""
        return self._end > 0

    def keep_bytes(self, file: ReadFile, position: int, size: int, *, code: str, why: str, **more: Any) -> None:
        """Keep a range of a file."""
        name = f"{self._name_of(file.path)}@{position}+{size}"
        digest = self._copy(file, position, size, join(self.path, name))
        self._note(name, file.path, position, size, digest, code, why, more)

    def keep_file(self, path: str, *, code: str, why: str, **more: Any) -> None:
        """Keep a whole file, or a directory and all that is in it. It stays where it is."""
        stat = self._fs.stat(path)
        if stat is None:
            return
        if stat.is_directory:
            for name in self._fs.list(path):
                self.keep_file(join(path, name), code=code, why=why)
            return
        name = self._name_of(path)
        with opened(self._fs.open(path)) as file:
            digest = self._copy(file, 0, file.size, join(self.path, name))
            self._note(name, path, 0, file.size, digest, code, why, more)

    def note_missing(self, path: str, first: int, last: int, *, code: str, why: str) -> None:
        """Write down that offsets are no longer in a log."""
        self._note(None, path, None, None, None, code, why, {"missing_offsets": [first, last]})

    def _name_of(self, path: str) -> str:
        below = path.removeprefix(f"{self._root.rstrip('/')}/")
        return below if below != path else path.strip("/")

    def _copy(self, source: ReadFile, position: int, size: int, path: str) -> str:
        self._make_directory(parent_of(path))
        digest = hashlib.sha256()
        target = self._fs.open_write(path)
        try:
            target.resize(0)
            done = 0
            while done < size:
                data = source.read(position + done, min(_CHUNK, size - done))
                if not data:
                    raise CorruptionError(f"{source.path}: it became shorter while it was copied")
                target.write_at(done, data)
                digest.update(data)
                done += len(data)
            target.sync()
        finally:
            target.close()
        self._fs.sync_directory(parent_of(path))
        self.pieces += 1
        self.bytes += size
        return digest.hexdigest()

    def _make_directory(self, path: str) -> None:
        missing = []
        while self._fs.stat(path) is None:
            missing.append(path)
            path = parent_of(path)
        for one in reversed(missing):
            self._fs.make_directory(one)
            self._fs.sync_directory(parent_of(one))

    def _note(
        self,
        piece: str | None,
        path: str,
        position: int | None,
        size: int | None,
        digest: str | None,
        code: str,
        why: str,
        more: Mapping[str, Any],
    ) -> None:
        entry = {
            "root": self._root,
            "partition_directory": parent_of(path).rpartition("/")[2],
            "file": path,
            "position": position,
            "size": size,
            "piece": piece,
            "sha256": digest,
            "code": code,
            "why": why,
            **more,
        }
        self._make_directory(self.path)
        manifest = self._fs.open_write(join(self.path, MANIFEST))
        try:
            line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
            manifest.write_at(self._end, line)
            manifest.sync()
            self._end += len(line)
        finally:
            manifest.close()
        self._fs.sync_directory(self.path)
