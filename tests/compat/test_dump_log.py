"""`tidelog.dump` and the dump tool of Apache Kafka 4.3, side by side on the same files."""

import io
import random
import re
import shutil
import struct
from pathlib import Path

import pytest

from tests.compat import kafka_tools
from tests.golden.corpus import Partition, case
from tidelog import dump

STACK_FRAME = re.compile(r"(?m)^\t(?:at |\.\.\. \d+ more).*\n")
KINDS = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def both(files: list[Path], *options: str) -> tuple[tuple[str, str, int], tuple[str, str, int]]:
    """What we print, and what Kafka prints. Ours first: the real tool may change index files."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    names = ",".join(map(str, files))
    code = dump.run([*options, "--files", names], stdout=stdout, stderr=stderr)
    result = kafka_tools.dump_log(files, *options)
    theirs = (result.stdout, STACK_FRAME.sub("", result.stderr), result.exit)
    return (stdout.getvalue().decode(), stderr.getvalue().decode(), code), theirs


def copied(source: Path, target: Path) -> list[Path]:
    shutil.copytree(source, target)
    return sorted(path for path in target.iterdir() if path.suffix in KINDS)


@pytest.mark.parametrize("options", [[], ["--print-data-log"], ["--deep-iteration", "--skip-record-metadata"]], ids=str)
def test_many_files_with_many_reports_are_the_same_text(options: list[str], tmp_path: Path) -> None:
    partitions = [
        case("dump-formats") / "written-by-1.0.0" / "mixed-0",
        case("dump-formats") / "written-by-2.8.2" / "mixed-0",
        Partition("kafka-4.3/4-transactions", "image/txn-main-0").path,
        Partition("kafka-4.3/2-records", "image/rec-times-0").path,
    ]
    files = [file for index, source in enumerate(partitions) for file in copied(source, tmp_path / f"p{index}")]
    ours, theirs = both(files, *options)
    assert ours == theirs
    assert theirs[1]


def damaged(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    match rng.choice(("flip", "cut", "zero", "length")):
        case "flip":
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        case "cut":
            del changed[rng.randrange(1, len(changed)) :]
        case "zero":
            start = rng.randrange(len(changed))
            changed[start : start + 40] = bytes(len(changed[start : start + 40]))
        case "length":
            struct.pack_into(">i", changed, 8, rng.choice((0, 13, 14, 48, 60, len(changed))))
    return bytes(changed)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_log_is_the_same_text(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    source = rng.choice(
        [
            *Partition("kafka-4.3/1-codecs", "image").path.rglob("*.log"),
            *(case("legacy") / "by-0.10.2.2").rglob("*.log"),
            *(case("dump-formats") / "written-by-2.8.2" / "mixed-0").glob("*.log"),
        ]
    )
    file = tmp_path / source.name
    file.write_bytes(damaged(source.read_bytes(), rng))
    ours, theirs = both([file], "--print-data-log")
    assert ours == theirs
