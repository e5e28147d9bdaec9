"""What real tools printed of command lines and of damaged files, kept in three archives beside this file.

`command_lines.json.xz`: 44 command lines, right and wrong, given to the tools of 60 releases.
`damaged_files.json.xz`: 543 small files of the golden corpus, each damaged once (bits flipped, bytes removed, inserted
or zeroed, lengths and counts set), given to the tools of eight releases.
`odd_files.json.xz`: 67 small files that no broker writes (control records of any type and length, wrappers inside
wrappers, sizes that lead outside, streams with something behind them), given to the tools of 14 releases.

Absolute directories read `<dir>`; lines of stack frames are left out.
"""

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Outcome(NamedTuple):
    """What a run left behind."""

    stdout: str
    stderr: str
    exit: int

    def inside(self, directory: str) -> "Outcome":
        """The same, with the name of a directory for `<dir>`."""
        return Outcome(self.stdout.replace("<dir>", directory), self.stderr.replace("<dir>", directory), self.exit)


class CommandLineRun(NamedTuple):
    """One command line in the hands of one release."""

    release: str
    args: list[str]
    outcome: Outcome


class DamagedFile(NamedTuple):
    """A directory with a damaged file in it, and what each release printed."""

    damage: str
    files: dict[str, bytes]
    args: list[str]
    outcomes: list[tuple[str, Outcome]]

    def write_to(self, directory: Path) -> None:
        for name, data in self.files.items():
            (directory / name).write_bytes(data)


def command_lines() -> Iterator[CommandLineRun]:
    recorded = json.loads(lzma.decompress((HERE / "command_lines.json.xz").read_bytes()))
    texts = recorded["texts"]
    for run in recorded["runs"]:
        for found in run["outcomes"]:
            outcome = Outcome(texts[found["stdout"]], texts[found["stderr"]], found["exit"])
            for release in found["releases"]:
                yield CommandLineRun(release, run["args"], outcome)


def damaged_files() -> Iterator[DamagedFile]:
    return _recorded("damaged_files.json.xz")


def odd_files() -> Iterator[DamagedFile]:
    return _recorded("odd_files.json.xz")


def _recorded(archive: str) -> Iterator[DamagedFile]:
    for case in json.loads(lzma.decompress((HERE / archive).read_bytes())):
        yield DamagedFile(
            case["damage"],
            {name: base64.b64decode(data) for name, data in case["files"].items()},
            case["args"],
            [(release, Outcome(*found["outcome"])) for found in case["outcomes"] for release in found["releases"]],
        )
