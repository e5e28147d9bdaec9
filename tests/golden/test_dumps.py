"""`tidelog.dump` against every stored output of Kafka's dump tool: the same text, the same reports, the same exit code.

`python -m tests.golden.test_dumps` prints what was compared: files, modes and releases, and how many are equal.
"""

import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tests.golden.corpus import Dump, Partition
from tidelog import dump

# -- 4.3 -----------------------------------------------------------------------------------------------------------

RUNS_OF_4_3 = {
    "kafka-4.3/1-codecs": 320,
    "kafka-4.3/2-records": 264,
    "kafka-4.3/3-rolls": 700,
    "kafka-4.3/4-transactions": 720,
    "kafka-4.3/5-compaction": 10920,
    "kafka-4.3/6-recovery": 16150,
    "kafka-4.3/7-lookups": 395,
    "kafka-4.3/8-consumer-offsets": 92,
    "kafka-4.3/9-metadata": 152,
}
CHANGED = "__files_changed_by_tool__"
STACK_FRAME = re.compile(r"(?m)^\t(?:at |\.\.\. \d+ more).*\n")


class Outcome(NamedTuple):
    """What a run left behind; the directory it ran in reads `<dir>`."""

    stdout: str
    stderr: str
    exit: int


def run_tool(args: list[str], release: str, directory: Path) -> Outcome:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    code = dump.run(args, release=release, stdout=stdout, stderr=stderr, cwd=str(directory))
    return Outcome(
        stdout.getvalue().decode(),
        stderr.getvalue().decode().replace(str(directory), "<dir>"),
        code,
    )


def dump_files(case: str) -> Iterator[tuple[Partition, dict[str, object]]]:
    home = corpus.case(case) / "dumps"
    for path in sorted(home.rglob("*.json")):
        name = path.relative_to(home).with_suffix("").as_posix()
        yield Partition(case, name), json.loads(path.read_text(encoding="utf-8"))


def as_changed_by_the_tool(partition: Partition, changes: object, home: Path) -> Path:
    """The directory after the real tool was there once: it creates a missing index, and cuts a ragged one."""
    target = home / partition.name.replace("/", "-")
    shutil.copytree(partition.path, target)
    for change in changes if isinstance(changes, list) else ():
        if "gone" not in change:
            file = target / change["name"]
            file.write_bytes(file.read_bytes()[: change["size"]] if file.exists() else b"")
    return target


def runs_of_4_3(case: str, home: Path) -> Iterator[tuple[str, str, Path, Dump]]:
    """File, mode, the directory to run in, and what Kafka's tool printed; the modes in the order of the recording."""
    for partition, files in dump_files(case):
        changes = files.pop(CHANGED, None)
        changed = as_changed_by_the_tool(partition, changes, home) if changes else partition.path
        for file in files:
            for index, mode in enumerate(corpus.dump_modes(partition, file)):
                yield file, mode, changed if index else partition.path, corpus.dump(partition, file, mode)


def equals_4_3(file: str, mode: str, directory: Path, kafkas: Dump) -> bool:
    ours = run_tool(["--files", file, *(() if mode == "plain" else mode.split())], "4.3", directory)
    theirs = (kafkas.stdout, STACK_FRAME.sub("", kafkas.stderr), kafkas.exit)
    return (kafkas.like(ours.stdout), ours.stderr, ours.exit) == theirs


@behaviour(
    "DMP-001", "DMP-002", "DMP-003", "DMP-004", "DMP-006", "DMP-007", "DMP-008", "DMP-009", "DMP-010", "DMP-011",
    "DMP-012", "DMP-013", "DMP-014", "DMP-017", "DMP-018", "DMP-019", "DMP-028",
)  # fmt: skip
@pytest.mark.parametrize("case", RUNS_OF_4_3)
def test_every_output_of_the_tool_of_4_3_is_ours(case: str, tmp_path: Path) -> None:
    runs = list(runs_of_4_3(case, tmp_path))
    assert [f"{directory}/{file} {mode}" for file, mode, directory, kafkas in runs
            if not equals_4_3(file, mode, directory, kafkas)] == []  # fmt: skip
    assert len(runs) == RUNS_OF_4_3[case]


# -- older releases ------------------------------------------------------------------------------------------------

OLD_CASES = (("legacy", ""), ("dump-formats", "written-by-1.0.0/"), ("dump-formats", "written-by-2.8.2/"))
RUNS_BY_RELEASE = {
    "0.8.2.2": 66,
    "0.9.0.1": 66,
    "0.10.2.2": 155,
    "1.0.0": 340,
    "1.1.1": 125,
    "2.0.1": 125,
    "2.1.1": 125,
    "2.2.2": 125,
    "2.3.1": 340,
    "2.4.1": 125,
    "2.8.2": 348,
    "3.1.0": 348,
    "3.4.0": 350,
    "3.9.1": 350,
    "4.0.0": 350,
    "4.2.0": 350,
}


class OldRun(NamedTuple):
    """One recorded run of an older tool."""

    release: str
    directory: Path
    args: list[str]
    outcome: Outcome

    @property
    def is_equal(self) -> bool:
        return run_tool(self.args, self.release, self.directory) == self.outcome


def old_runs() -> Iterator[OldRun]:
    for case, below in OLD_CASES:
        home = corpus.case(case) / below
        for recorded in sorted((home / "expected").glob("*.json")):
            for run in corpus.old_dumps(case, recorded.stem, below):
                yield OldRun(recorded.stem, home / run.dir, run.args, Outcome(run.stdout, run.stderr, run.exit))


@behaviour("DMP-005", "DMP-015")
@pytest.mark.parametrize("release", RUNS_BY_RELEASE)
def test_every_output_of_an_older_tool_is_ours(release: str) -> None:
    runs = [run for run in old_runs() if run.release == release]
    assert [f"{run.directory} {run.args}" for run in runs if not run.is_equal] == []
    assert len(runs) == RUNS_BY_RELEASE[release]


def test_the_walk_through_is_what_the_tool_of_1_0_printed() -> None:
    assert walk_through() == (128, 128)


def walk_through() -> tuple[int, int]:
    """Runs of the tool of 1.0.0 in the walk-through, and how many are equal."""
    runs = equal = 0
    for stored in sorted(corpus.case("seed-walkthrough").rglob("dump-1.0.0/*.stdout")):
        name, options = re.fullmatch(r"(\d+\.\w+)\.(.*)\.stdout", stored.name).groups()  # type: ignore[union-attr]
        [file] = stored.parent.parent.glob(f"*/{name}")
        args = ["--files", name, *(f"--{option}" for option in options.split(".") if option != "plain")]
        ours = run_tool(args, "1.0.0", file.parent)
        runs += 1
        equal += ours.stdout == stored.read_text(encoding="utf-8")
    return runs, equal


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.8.2.2", "1.0.0", "2.8.2", "4.2.0"])
def test_the_command_prints_the_same(release: str) -> None:
    chosen = [run for run in old_runs() if run.release == release and (run.outcome.stderr or run.outcome.exit)][:2]
    assert len(chosen) == 2
    for run in chosen:
        command = [sys.executable, "-m", "tidelog", "dump-log", "--kafka-version", release, *run.args]
        done = subprocess.run(command, cwd=run.directory, capture_output=True, timeout=60, check=False)
        stderr = done.stderr.decode().replace(str(run.directory), "<dir>")
        assert Outcome(done.stdout.decode(), stderr, done.returncode) == run.outcome


# -- the report ----------------------------------------------------------------------------------------------------


def report() -> None:
    """Print how many outputs were compared, by release and case, and how many are equal."""
    import tempfile

    runs, equal = Counter[str](), Counter[str]()
    for run in old_runs():
        runs[run.release] += 1
        equal[run.release] += run.is_equal
    for release in RUNS_BY_RELEASE:
        sys.stdout.write(f"{release:>10}  {runs[release]:6} outputs  {equal[release]:6} equal\n")
    sys.stdout.write(f"{'1.0.0':>10}  {walk_through()[0]:6} outputs  {walk_through()[1]:6} equal  (walk-through)\n")
    with tempfile.TemporaryDirectory() as home:
        for case in RUNS_OF_4_3:
            outcomes = [equals_4_3(*run) for run in runs_of_4_3(case, Path(home))]
            sys.stdout.write(f"{'4.3.0':>10}  {len(outcomes):6} outputs  {sum(outcomes):6} equal  ({case})\n")


if __name__ == "__main__":
    report()
