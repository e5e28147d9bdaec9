"""A file system in memory over a real one: it behaves like the real one, which stays as it is."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.log.files import FileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.overlay_files import OverlayFileSystem

NAMES = ["a", "b", "c", "d"]
Move = Callable[[FileSystem, str], object]


def some_files(directory: Path) -> Path:
    directory.mkdir()
    (directory / "a").write_bytes(b"from below")
    (directory / "b").write_bytes(b"")
    return directory


def a_move(chance: random.Random) -> Move:
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    position, size = chance.randrange(20), chance.randrange(30)
    data = chance.randbytes(chance.randrange(8))
    moves: list[Move] = [
        lambda fs, home: fs.open_write(f"{home}/{name}").write_at(position, data),
        lambda fs, home: fs.open_write(f"{home}/{name}", create=False).resize(size),
        lambda fs, home: fs.open_write(f"{home}/{name}").sync(),
        lambda fs, home: fs.rename(f"{home}/{name}", f"{home}/{other}") if name != other else None,
        lambda fs, home: fs.remove(f"{home}/{name}"),
        lambda fs, home: fs.set_modified(f"{home}/{name}", size * 1000),
    ]
    return chance.choice(moves)


def tried(move: Move, fs: FileSystem, home: Path) -> object:
    try:
        return move(fs, str(home))
    except StorageError:
        return StorageError


def content(fs: FileSystem, home: Path) -> dict[str, bytes]:
    return {name: fs.open(f"{home}/{name}").read(0, 1000) for name in fs.list(str(home))}


@pytest.mark.parametrize("seed", range(60))
def test_it_does_what_the_disk_would_do_and_leaves_the_disk_alone(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    below, twin = some_files(tmp_path / "below"), some_files(tmp_path / "twin")
    disk, overlay = LocalFileSystem(), OverlayFileSystem(LocalFileSystem())
    untouched = content(disk, below)
    for _ in range(25):
        move = a_move(chance)
        assert tried(move, overlay, below) == tried(move, disk, twin)
        assert content(overlay, below) == content(disk, twin)
        sizes = [(overlay.stat(f"{below}/{name}"), disk.stat(f"{twin}/{name}")) for name in NAMES]
        assert [over and over.size for over, _ in sizes] == [real and real.size for _, real in sizes]
    assert content(disk, below) == untouched


def test_a_file_that_is_open_reads_what_is_written_through_another_handle(tmp_path: Path) -> None:
    below = some_files(tmp_path / "below")
    overlay = OverlayFileSystem(LocalFileSystem())
    first, second = overlay.open_write(f"{below}/a"), overlay.open_write(f"{below}/a")
    first.write_at(0, b"FROM")
    room = bytearray(20)
    assert second.read_into(0, memoryview(room)) == 10
    assert room[:10] == b"FROM below"


def test_a_new_directory_is_there_and_only_here(tmp_path: Path) -> None:
    overlay = OverlayFileSystem(LocalFileSystem())
    overlay.make_directory(f"{tmp_path}/new")
    overlay.open_write(f"{tmp_path}/new/file")
    assert overlay.list(f"{tmp_path}/new") == ["file"]
    assert overlay.list(str(tmp_path)) == ["new"]
    assert not (tmp_path / "new").exists()
