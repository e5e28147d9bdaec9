"""The tool as a whole: command lines, damage, directories, and what it does not do."""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.dump.recorded import DamagedFile, Outcome, command_lines, damaged_files, odd_files
from tests.golden.corpus import case
from tidelog import dump

MIXED = case("dump-formats") / "written-by-1.0.0" / "mixed-0"
LOG = "00000000000000000000.log"


def run(args: list[str], cwd: Path | str = "/", release: str = "4.3") -> Outcome:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    code = dump.run(args, release=release, stdout=stdout, stderr=stderr, cwd=str(cwd))
    return Outcome(stdout.getvalue().decode(), stderr.getvalue().decode(), code)


@behaviour("DMP-015", "DMP-016")
def test_command_lines_are_answered_as_by_the_tools_of_60_releases() -> None:
    runs, releases = 0, set()
    for recorded in command_lines():
        args = [word.replace("<dir>", str(MIXED)) for word in recorded.args]
        assert (recorded.release, args, run(args, release=recorded.release)) == (
            recorded.release,
            args,
            recorded.outcome.inside(str(MIXED)),
        )
        runs += 1
        releases.add(recorded.release)
    assert (runs, len(releases)) == (2640, 60)


def test_damaged_files_are_dumped_as_far_as_the_real_tools_get(tmp_path: Path) -> None:
    runs, ends = replay(damaged_files(), tmp_path / "damaged")
    assert runs > 3500
    assert ends > 1000


def test_odd_files_are_dumped_as_far_as_the_real_tools_get(tmp_path: Path) -> None:
    runs, ends = replay(odd_files(), tmp_path / "odd")
    assert runs > 800
    assert ends > 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0000-1.checkpoint", "StringIndexOutOfBoundsException: begin 0, end 20, length 17"),
        ("0000000000000000001.checkpoint", 'NumberFormatException: For input string: "0000000000000000001."'),
        ("00000000000000000010.checkpoint", 'NumberFormatException: For input string: "checkpoint"'),
    ],
)
def test_a_snapshot_is_named_by_offset_and_epoch(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    found = run(["--files", str(tmp_path / name)])
    assert (found.stderr, found.exit) == (f'Exception in thread "main" java.lang.{message}\n', 1)


def test_letters_behind_one_dash_are_options_of_their_own() -> None:
    long = run(["--print-data-log", "--deep-iteration", "--files", f"{MIXED}/{LOG}"], release="0.10.2")
    assert run(["-pd", "--files", f"{MIXED}/{LOG}"], release="0.10.2") == long
    assert run(["-pf", f"{MIXED}/{LOG}", "--deep"], release="0.10.2") == long
    assert run(["-pd=3"], release="0.10.2").stderr.endswith(
        "UnrecognizedOptionException: = is not a recognized option\n"
    )
    assert run(["-pf", "x"], release="0.9.0").stderr.endswith(": Option cluster containing 'f' is illegal\n")


def replay(files: Iterator[DamagedFile], directory: Path) -> tuple[int, int]:
    """Dump each file as it was dumped; how many runs there were, and how many of them ended early."""
    runs = ends = 0
    for damaged in files:
        directory.mkdir()
        damaged.write_to(directory)
        args = [word.replace("<dir>", str(directory)) for word in damaged.args]
        for release, outcome in damaged.outcomes:
            ours = run(args, release=release)
            assert (damaged.damage, args, release, ours) == (
                damaged.damage,
                args,
                release,
                outcome.inside(str(directory)),
            )
            runs += 1
            ends += outcome.exit
        shutil.rmtree(directory)
    return runs, ends


def test_nothing_is_written_where_the_real_tool_creates_an_index(tmp_path: Path) -> None:
    for name in (LOG, "00000000000000000000.timeindex"):
        shutil.copy(MIXED / name, tmp_path)
    before = sorted(os.listdir(tmp_path))
    done = run(["--files", "00000000000000000000.timeindex"], tmp_path)
    assert "Invalid max index size: -1" in done.stderr
    assert done.exit == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_a_directory_is_dumped_as_if_each_of_its_files_had_been_given(tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(MIXED, root / "mixed-0")
    (root / "meta.properties").write_text("version=1\n")
    kinds = (".checkpoint", ".index", ".log", ".snapshot", ".timeindex", ".txnindex")
    names = sorted(path.name for path in MIXED.iterdir() if path.suffix in kinds)
    one_by_one = run(["--files", ",".join(f"data/mixed-0/{name}" for name in names)], tmp_path)
    assert run(["--files", "data"], tmp_path) == one_by_one
    assert run(["--files", "data/mixed-0/"], tmp_path) == one_by_one
    assert one_by_one.stdout.count("Dumping ") == len(names)


def test_text_and_binary_streams_get_the_same() -> None:
    text, notes = io.StringIO(), io.StringIO()
    args = ["--files", LOG, "--print-data-log"]
    code = dump.run(args, stdout=text, stderr=notes, cwd=str(MIXED))
    assert Outcome(text.getvalue(), notes.getvalue(), code) == run(args, MIXED)


def test_a_dump_is_written_while_it_is_made() -> None:
    class Pieces(io.RawIOBase):
        sizes: list[int] = []

        def write(self, data: object) -> int:
            self.sizes.append(len(bytes(data)))  # type: ignore[call-overload]
            return self.sizes[-1]

    stream = Pieces()
    names = ",".join([LOG] * 200)
    dump.run(["--files", names, "--deep-iteration"], stdout=stream, stderr=io.BytesIO(), cwd=str(MIXED))  # type: ignore[arg-type]
    assert len(stream.sizes) > 10
    assert max(stream.sizes) < 200_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_ends_the_tool(tmp_path: Path) -> None:
    shutil.copy(MIXED / LOG, tmp_path)
    (tmp_path / LOG).chmod(0)
    done = run(["--files", LOG], tmp_path)
    assert done.stderr == f'Exception in thread "main" java.nio.file.AccessDeniedException: {LOG}\n'
    assert done.exit == 1


def test_reports_of_4_3_come_in_the_order_of_its_hash_map(tmp_path: Path) -> None:
    """The order that Java 17 gives to these names, as String.hashCode() is part of its specification."""
    names = [f"/p{number}/00000000000000000000.index" for number in range(6)]
    from tidelog.dump.hash_order import hash_order, java_hash

    assert java_hash("/p0/00000000000000000000.index") == java_hash_by_definition(names[0])
    buckets = [(java_hash(name) ^ java_hash(name) >> 16) & 15 for name in hash_order(names)]
    assert buckets == sorted(buckets)


def java_hash_by_definition(text: str) -> int:
    return sum(ord(unit) * 31 ** (len(text) - 1 - index) for index, unit in enumerate(text)) & 0xFFFFFFFF
