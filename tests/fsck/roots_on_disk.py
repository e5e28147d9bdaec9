"""The world of the campaign as files of this machine, for tests of commands, owners and locks."""

from pathlib import Path

from tests.fsck.world import ROOT, world
from tidelog.testing.disk import SimulatedFileSystem


def a_root(tmp_path: Path, disk: SimulatedFileSystem | None = None) -> Path:
    """A copy of the world, or of what became of it."""
    root = tmp_path / "kafka"
    root.mkdir()
    (disk or world()).to_directory(str(root), ROOT)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All files below a directory, by their path in it."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def segment(root: Path, number: int = 0, suffix: str = ".log", partition: str = "orders-0") -> Path:
    """A file of a partition, by the number of its segment."""
    return sorted((root / partition).glob(f"*{suffix}"))[number]


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
