"""Where a repair keeps what it takes out: `<root>.tidelog/<time>/`, beside the root, never in it.

    kafka-logs.tidelog/20261116T091500Z/
        manifest.jsonl                                         one line for each piece, written before the piece goes
        orders-0/00000000000000000000.log@16384+4096           the bytes from 16384 on, 4096 of them
        orders-0/00000000000000000042.snapshot                 a whole file

A line of the manifest names the file, the range of bytes, the offsets where they are known, the SHA-256 of the bytes
and why they were taken out, and by which code. Offsets that are missing from a log because of a repair are looked up
here by the next check, and so are notices: what a repair left to people, and what was lost before it. Every repair of
every root has a directory of its own, and nothing in one is written over.

Nobody can read more in a quarantine than where it came from: a piece has the owner and the mode of its file, a
directory those of the partition directory or the root. While a repair fills its directory, only its user can enter it.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from tidelog.errors import CorruptionError, InvalidRequestError, LockedError
from tidelog.fsck.places import MANIFEST, real_path
from tidelog.fsck.rehearsal import CHUNK, copy_range, is_local
from tidelog.log.files import FileLock, FileSystem, ReadFile, ReadFileSystem, join, opened, parent_of, read_whole
from tidelog.log.guarded_paths import resolved_place
from tidelog.log.local_files import LocalFileSystem, own_as, storage_error
from tidelog.log.names import LOCK_FILE

__all__ = ["MANIFEST", "Notice", "Quarantine", "Remembered", "quarantine_of", "remembered"]

_PRIVATE = 0o700
_OF_FILES, _OF_OWNER, _OF_GROUP = 0o666, 0o600, 0o070
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")


class Notice(NamedTuple):
    """What later checks are to tell of a partition."""

    code: str
    file: str  # its name in the partition directory
    why: str
    offsets: tuple[int, int] | None
    repaired: str  # when


class Remembered(NamedTuple):
    """What repairs have written down of one partition."""

    missing: tuple[tuple[int, int], ...] = ()  # offsets that they have taken out, or found missing
    notices: tuple[Notice, ...] = ()


def quarantine_of(fs: ReadFileSystem, root: str, wanted: str | None = None) -> str:
    """Where the quarantine of a root lies: beside it, however the root was named, or where one wants it."""
    root = real_path(fs, root)
    if wanted is None:
        return f"{root}.tidelog"
    directory = _trusted(wanted) if is_local(fs) else wanted.rstrip("/") or "/"
    if f"{real_path(fs, directory)}/".startswith(f"{root.rstrip('/')}/"):
        raise InvalidRequestError(f"{wanted} lies in {root}, where Kafka refuses it: name a quarantine outside")
    return directory


def _trusted(wanted: str) -> str:
    """The path of a quarantine that may be missing, if root may follow each link in it."""
    try:
        above = wanted = wanted.rstrip("/") or "/"
        while above:  # also where what lies below is missing
            resolved_place(above)
            above = os.path.dirname(above) if above != "/" else ""
        return resolved_place(wanted)
    except (OSError, ValueError) as error:
        raise storage_error(wanted, error) from error


def remembered(fs: ReadFileSystem, directory: str, root: str) -> Mapping[str, Remembered]:
    """What repairs of a root have written down, by the name of the partition directory."""
    root = real_path(fs, root)
    found: dict[str, Remembered] = {}
    stat = fs.stat(directory)
    if stat is None or not stat.is_directory:
        return found
    for stamp in fs.list(directory):
        path = join(join(directory, stamp), MANIFEST)
        if fs.stat(path) is None:
            continue
        for line in read_whole(fs, path).splitlines():
            entry = _entry(line)
            match entry:
                case {"root": str(of), "partition_directory": str(name)} if of == root:
                    found[name] = _with_entry(found.get(name, Remembered()), entry, stamp)
    return found


def _with_entry(known: Remembered, entry: Mapping[str, Any], stamp: str) -> Remembered:
    """What is known with one more line of a manifest."""
    offsets = None
    match entry:
        case {"missing_offsets": [int(first), int(last)]}:
            offsets = first, last
            known = known._replace(missing=(*known.missing, offsets))
    match entry:
        case {"notice": True, "code": str(code), "file": str(file), "why": str(why)}:
            notice = Notice(code, file.rpartition("/")[2], why, offsets, _time_of(stamp))
            others = (one for one in known.notices if one[:2] != notice[:2] or one.offsets != offsets)
            known = known._replace(notices=(*others, notice))  # the newest repair is the one to tell of
    return known


def _time_of(stamp: str) -> str:
    """When a repair was, by the name of its directory."""
    time = _STAMP.match(stamp)
    return stamp if time is None else "{}-{}-{}T{}:{}:{}Z".format(*time.groups())


def _entry(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # torn by a crash: the piece it was to name has not been taken out
        return {}
    return value if isinstance(value, dict) else {}


class Quarantine:
    """The part that one repair of one root has in the quarantine. Nothing is created before something is put in."""

    def __init__(self, fs: FileSystem, directory: str, root: str, stamp: str) -> None:
        self.path = join(directory, stamp)
        self.pieces = 0
        self.bytes = 0
        self._fs = fs
        self._given_root = root
        self._root = real_path(fs, root)
        self._lock: FileLock | None = None  # so that the directory is nobody else's
        self._end = 0  # of the manifest
        self._kept: dict[str, str] = {}  # SHA-256 by piece
        self._noticed: set[tuple[str, str]] = set()  # file and code
        self._rights = _OF_FILES  # who may read what the manifest names

    @property
    def is_used(self) -> bool:
        """Whether something was put in or written down."""
        return self._end > 0

    def close(self) -> None:
        """Nothing more is put in."""
        if self._lock is not None:
            try:
                self._fs.remove(join(self.path, LOCK_FILE))
                self._own_like(self.path, self._given_root)
            finally:
                self._lock.release()

    def keep_bytes(self, file: ReadFile, position: int, size: int, *, code: str, why: str, **more: Any) -> None:
        """Keep a range of a file."""
        name = f"{self._name_of(file.path)}@{position}+{size}"
        self._keep(name, file, position, size, code, why, more)

    def keep_file(self, path: str, *, code: str, why: str, **more: Any) -> None:
        """Keep a whole file, or a directory and all that is in it. It stays where it is."""
        stat = self._fs.stat(path)
        if stat is None:
            return
        if stat.is_directory:
            for name in self._fs.list(path):
                self.keep_file(join(path, name), code=code, why=why)
            return
        with opened(self._fs.open(path)) as file:
            self._keep(self._name_of(path), file, 0, file.size, code, why, more)

    def note_missing(self, path: str, first: int, last: int, *, code: str, why: str) -> None:
        """Write down that offsets are no longer in a log."""
        self._note(None, path, None, None, None, code, why, {"missing_offsets": [first, last]})

    def note_notice(self, path: str, *, code: str, why: str, missing: tuple[int, int] | None = None) -> None:
        """Write down what later checks are to tell of a file, once."""
        if (path, code) not in self._noticed:
            offsets = {} if missing is None else {"missing_offsets": list(missing)}
            self._note(None, path, None, None, None, code, why, {"notice": True, **offsets})
            self._noticed.add((path, code))

    def _name_of(self, path: str) -> str:
        below = path.removeprefix(f"{self._given_root.rstrip('/')}/")
        return below if below != path else path.strip("/")

    def _keep(
        self, name: str, source: ReadFile, position: int, size: int, code: str, why: str, more: Mapping[str, Any]
    ) -> None:
        """Copy bytes, and write it down; what lies there already as it is now is not copied again."""
        digest = _digest(source, position, size)
        if self._kept.get(name) == digest:
            return
        piece = next(
            one for number in count(1) if (one := name if number == 1 else f"{name}~{number}") not in self._kept
        )
        self._occupy()
        path = join(self.path, piece)
        self._make_directory(parent_of(path))
        target = self._fs.open_write(path)
        try:
            target.resize(0)
            self._own_piece(path, source)
            copy_range(source, position, size, target, 0)
            target.sync()
        finally:
            target.close()
        self._fs.sync_directory(parent_of(path))
        self._narrow_manifest(source)
        self.pieces += 1
        self.bytes += size
        self._note(piece, source.path, position, size, digest, code, why, more)
        self._kept[piece] = digest

    def _occupy(self) -> None:
        """Find a directory that no other repair has, or has had."""
        if self._lock is not None:
            return
        first = self.path
        for number in count(1):
            self.path = first if number == 1 else f"{first}-{number}"
            self._make_directory(self.path)
            try:
                lock = self._fs.lock(join(self.path, LOCK_FILE))
            except LockedError:
                continue
            if set(self._fs.list(self.path)) <= {LOCK_FILE}:
                self._lock = lock
                self._begin_manifest()
                return
            lock.release()

    def _begin_manifest(self) -> None:
        """Make the file that a quarantine is known by, before there is a piece in it."""
        path = join(self.path, MANIFEST)
        manifest = self._fs.open_write(path)
        try:
            manifest.sync()
        finally:
            manifest.close()
        self._own_like(path, self._given_root, self._rights)
        self._fs.sync_directory(self.path)

    def _make_directory(self, path: str) -> None:
        missing = []
        while self._fs.stat(path) is None:
            missing.append(path)
            path = parent_of(path)
        for one in reversed(missing):
            self._fs.make_directory(one)
            if one == self.path:
                self._own_like(one, one, _PRIVATE)
            else:
                below = one.removeprefix(f"{self.path}/")
                model = join(self._given_root, below) if below != one else self._given_root
                self._own_like(one, model if self._fs.stat(model) is not None else self._given_root)
            self._fs.sync_directory(parent_of(one))

    def _own_like(self, path: str, model: str, most: int = 0o7777) -> None:
        """Give a path the owner and the mode of another one, but at most some rights."""
        if isinstance(self._fs, LocalFileSystem):
            try:
                found = os.stat(model)
            except OSError as error:
                raise storage_error(model, error) from error
            _own(path, found, most)

    def _own_piece(self, path: str, source: ReadFile) -> None:
        if isinstance(self._fs, LocalFileSystem) and source.descriptor is not None:
            try:
                found = os.fstat(source.descriptor)
            except OSError as error:
                raise storage_error(source.path, error) from error
            _own(path, found, _OF_FILES)

    def _narrow_manifest(self, source: ReadFile) -> None:
        """Let nobody read the name, the size and the digest of a file who can read neither it nor its directory."""
        if isinstance(self._fs, LocalFileSystem) and source.descriptor is not None:
            try:
                modes = os.fstat(source.descriptor).st_mode, os.stat(parent_of(source.path)).st_mode
            except OSError as error:
                raise storage_error(source.path, error) from error
            rights = self._rights & (modes[0] & modes[1] | _OF_OWNER)
            if rights != self._rights:
                self._rights = rights
                self._own_like(join(self.path, MANIFEST), self._given_root, rights)

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
        self._occupy()
        below = path.removeprefix(f"{self._given_root.rstrip('/')}/")
        entry = {
            "root": self._root,
            "partition_directory": parent_of(path).rpartition("/")[2],
            "file": join(self._root, below) if below != path else path,
            "position": position,
            "size": size,
            "piece": piece,
            "sha256": digest,
            "code": code,
            "why": why,
            **more,
        }
        manifest = self._fs.open_write(join(self.path, MANIFEST))
        try:
            line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
            manifest.write_at(self._end, line)
            manifest.sync()
            self._end += len(line)
        finally:
            manifest.close()
        self._fs.sync_directory(self.path)


def _own(path: str, model: os.stat_result, most: int) -> None:
    """Give a path owner and mode of something; where the group cannot be given, nothing to the group it has."""
    mode = stat.S_IMODE(model.st_mode) & most
    try:
        if os.geteuid() != 0 and os.stat(path, follow_symlinks=False).st_gid != model.st_gid:
            mode &= ~_OF_GROUP
    except OSError as error:
        raise storage_error(path, error) from error
    own_as(path, model, mode)


def _digest(source: ReadFile, position: int, size: int) -> str:
    digest = hashlib.sha256()
    done = 0
    while done < size:
        data = source.read(position + done, min(CHUNK, size - done))
        if not data:
            raise CorruptionError(f"{source.path}: it became shorter while it was copied")
        digest.update(data)
        done += len(data)
    return digest.hexdigest()
