"""A file gets its name when it is complete; links are followed, and what is no file is not replaced."""

import os
import threading
from pathlib import Path

import pytest

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.tables.new_file import written_beside


def write(path: Path, data: bytes = b"new", *, force: bool = False) -> None:
    with written_beside(str(path), force=force) as sink:
        sink.write(data)


def test_a_file_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written_beside(str(tmp_path / "x")):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_by_force_only(tmp_path: Path) -> None:
    write(tmp_path / "x", b"old")
    with pytest.raises(InvalidRequestError, match="--force"):
        write(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"old"
    write(tmp_path / "x", force=True)
    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "x")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "x").read_bytes() == b"new"
    with pytest.raises(InvalidRequestError):
        write(tmp_path / "link")


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert (read, pipe.is_fifo()) == ([b"new"], True)


def test_a_device_is_written_into() -> None:
    write(Path(os.devnull), force=True)
    assert Path(os.devnull).is_char_device()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="nowhere is no directory"):
        write(tmp_path / "nowhere" / "x")


def test_what_the_disk_refuses_names_the_file() -> None:
    with pytest.raises(StorageError, match="/dev/full"):
        write(Path("/dev/full"), bytes(1 << 20))
