"""Pack the golden corpus: one archive per case, the text beside it.

    python tests/golden/pack.py SOURCE

SOURCE is the corpus as it was recorded, a directory per case. Of each case the README is copied, and everything else
goes into `files.tar.xz`; packing the same files again gives the same archive (names sorted, no times, no owners).
See README.md here.
"""

import lzma
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = "files.tar.xz"
RELEASE = "kafka-4.3"  # a directory of cases; the other directories are cases themselves
OTHER_CASES = ("dump-formats", "index-content", "legacy", "seed-walkthrough", "wire")


def case_names(source: Path) -> Iterator[str]:
    """The cases of the corpus that are packed, by their path below SOURCE."""
    for directory in sorted(path for path in (source / RELEASE).iterdir() if path.is_dir()):
        yield f"{RELEASE}/{directory.name}"
    yield from OTHER_CASES


def pack(source: Path, target: Path) -> None:
    """Copy the README of the case `source` into `target` and pack everything else beside it."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "README.md", target / "README.md")
    with (
        lzma.open(target / ARCHIVE, "wb", preset=9 | lzma.PRESET_EXTREME) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            if name != "README.md":
                archive.add(path, name, recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def main(source: Path) -> None:
    """Pack every case and copy what belongs to all cases of the release."""
    for name in case_names(source):
        pack(source / name, HERE / name)
    for name in ("README.md", "topic-defaults.json"):
        shutil.copyfile(source / RELEASE / name, HERE / RELEASE / name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
