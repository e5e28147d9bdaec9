"""A file gets its name when it is complete; links are followed, and what is no file is not replaced."""

import os
import threading
from pathlib import Path

import pytest

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.tables.new_file import ensure_free, written_beside


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


@pytest.mark.parametrize("place", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_pipe_without_a_name_is_written_into(place: str) -> None:
    reader, writer = os.pipe()
    write(Path(place.format(writer)))
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"new"


# -- root ------------------------------------------------------------------------------------------------------------

OTHER = 1000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it plays another user and root")


def planted(link: Path, target: Path) -> Path:
    """A link of another user, in a directory where anybody can make one."""
    link.parent.mkdir(exist_ok=True)
    link.parent.chmod(0o1777)
    link.symlink_to(target)
    os.lchown(link, OTHER, OTHER)
    return link


@as_root
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_root_writes_through_no_link_of_another_user(tmp_path: Path, is_there: bool, force: bool) -> None:
    victim = tmp_path / "elsewhere" / "victim"
    victim.parent.mkdir()
    if is_there:
        victim.write_bytes(b"precious")
    link = planted(tmp_path / "own" / "o", victim)
    with pytest.raises(StorageError, match=r"own/o: it is a symbolic link that uid 1000 made, and root does not"):
        write(link, force=force)
    with pytest.raises(StorageError, match="uid 1000 made"):
        ensure_free(str(link), force=force)
    assert [path.read_bytes() for path in victim.parent.iterdir()] == ([b"precious"] if is_there else [])


@as_root
@pytest.mark.parametrize("name", ["x/o", "x/../elsewhere/o"])
def test_root_writes_into_no_directory_behind_a_link_of_another_user(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    planted(tmp_path / "own" / "x", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"x is a symbolic link that uid 1000 made, and root does not follow it"):
        write(Path(f"{tmp_path}/own/{name}"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@as_root
def test_a_link_of_root_to_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    planted(tmp_path / "own" / "o", tmp_path / "victim")
    (tmp_path / "link").symlink_to("own/o")
    with pytest.raises(StorageError, match="uid 1000 made"):
        write(tmp_path / "link")
    assert not (tmp_path / "victim").exists()


@as_root
def test_a_link_that_comes_while_the_file_is_written_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with written_beside(str(tmp_path / "own" / "o")) as sink:
        planted(tmp_path / "own" / "o", tmp_path / "victim")
        (tmp_path / "own").rename(tmp_path / "moved")
        planted(tmp_path / "own", tmp_path / "nowhere")
        sink.write(b"new")
    assert (tmp_path / "moved" / "o").read_bytes() == b"new"
    assert not (tmp_path / "victim").exists()


def test_a_relative_path_and_links_that_lead_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("x"))
    assert (tmp_path / "x").read_bytes() == b"new"
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    with pytest.raises(StorageError, match="symbolic links"):
        write(Path("a"))
