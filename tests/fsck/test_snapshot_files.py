"""Damaged bytes of metadata snapshots and of `bootstrap.checkpoint`, most of which Kafka does not notice."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.corpus import case
from tidelog.fsck import Finding, check
from tidelog.fsck.snapshot_files import Flaw, first_flaw
from tidelog.fsck.would_start import would_start
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import read_batches
from tidelog.records.checksum import crc32c_of

IMAGE = case("kafka-4.3/9-metadata") / "image"
BOOTSTRAP = "bootstrap.checkpoint"
CODES = ("META-BOOTSTRAP", "META-SNAPSHOT")
DATA = (IMAGE / BOOTSTRAP).read_bytes()
HEADER, RECORDS, FOOTER = (batch.size_in_bytes for batch in read_batches(DATA))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = Path(shutil.copytree(IMAGE, tmp_path / "root"))
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def noted(root: Path) -> list[Finding]:
    return [one for one in check(str(root)).findings if one.code in CODES]


def test_nothing_is_wrong_with_files_that_kafka_wrote(root: Path) -> None:
    assert noted(root) == []
    assert [path for path in IMAGE.rglob("*.checkpoint") if first_flaw(path.read_bytes())] == []


def test_every_changed_bit_and_every_cut_is_found() -> None:
    bits = [(at, bit) for at in range(len(DATA)) for bit in range(8)]
    assert [(at, bit) for at, bit in bits if first_flaw(flipped(DATA, at, bit)) is None] == []
    assert [size for size in range(len(DATA)) if first_flaw(DATA[:size]) is None] == []


def summed(data: bytes) -> bytes:
    """A batch with the checksum of its bytes."""
    return data[:17] + crc32c_of(data[21:]).to_bytes(4, "big") + data[21:]


@pytest.mark.parametrize(
    ("start", "size", "what"),
    [
        (0, HEADER, "the file does not begin with the header of a snapshot"),
        (HEADER + RECORDS, FOOTER, "the file does not end with a footer"),
    ],
)
def test_a_control_batch_with_a_right_checksum_that_cannot_be_read_is_found(start: int, size: int, what: str) -> None:
    for position in range(start + 61, start + size):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            data = DATA[:position] + bytes([value]) + DATA[position + 1 :]
            flaw = first_flaw(DATA[:start] + summed(data[start : start + size]) + DATA[start + size :])
            assert flaw is None or flaw.what == what


UNNOTICED: dict[str, tuple[bytes, Flaw]] = {
    "a cut inside the footer": (
        DATA[:-30], Flaw(HEADER + RECORDS, FOOTER - 30, "the file ends inside a batch"),
    ),
    "no footer": (
        DATA[:-FOOTER], Flaw(HEADER + RECORDS, None, "the file does not end with a footer"),
    ),
    "bytes after the footer": (DATA + b"abc", Flaw(len(DATA), 3, "the file ends inside a batch")),
    "a changed checksum": (
        flipped(DATA, HEADER + 18), Flaw(HEADER, RECORDS, "the checksum of the batch does not match its bytes"),
    ),
    "a changed timestamp": (
        flipped(DATA, HEADER + 30), Flaw(HEADER, RECORDS, "the checksum of the batch does not match its bytes"),
    ),
    "a changed offset": (
        flipped(DATA, HEADER + 7), Flaw(HEADER, RECORDS, "the batch begins at offset 0, expected is 1"),
    ),
    "a changed epoch": (
        flipped(DATA, HEADER + 15), Flaw(HEADER, RECORDS, "the batch has leader epoch 1, those before it have 0"),
    ),
    "a changed version": (
        flipped(DATA, HEADER + 16), Flaw(HEADER, RECORDS, "a batch of version 3, expected is 2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "flaw"), UNNOTICED.values(), ids=UNNOTICED)
def test_damage_to_the_bootstrap_file_that_kafka_does_not_notice_is_a_warning(
    root: Path, data: bytes, flaw: Flaw
) -> None:
    (root / BOOTSTRAP).write_bytes(data)
    assert would_start(LocalFileSystem(), [str(root)]).starts
    (found,) = noted(root)
    assert (found.code, found.severity.value, found.file) == ("META-BOOTSTRAP", "warning", str(root / BOOTSTRAP))
    assert (found.position, found.size, found.message) == (
        flaw.position, flaw.size, f"{flaw.what}; Kafka does not notice",
    )  # fmt: skip
    assert found.remedy.startswith("move it away if the node has a metadata log")


@pytest.mark.parametrize(
    ("hurt", "position"),
    [(lambda data: data[: HEADER + 40], HEADER), (lambda data: data + bytes(40), len(DATA)), (lambda data: b"", 0)],
    ids=["without records", "zeros at the end", "empty"],
)
def test_a_bootstrap_file_on_which_kafka_does_not_start_is_an_error_with_its_position(
    root: Path, hurt: Callable[[bytes], bytes], position: int
) -> None:
    (root / BOOTSTRAP).write_bytes(hurt(DATA))
    assert would_start(LocalFileSystem(), [str(root)]).starts is False
    (found,) = noted(root)
    assert (found.code, found.severity.value, found.position) == ("META-BOOTSTRAP", "error", position)


def test_damage_to_a_snapshot_that_kafka_does_not_notice_is_a_warning(root: Path) -> None:
    path = max((root / "__cluster_metadata-0").glob("*.checkpoint"))
    data = path.read_bytes()
    first, *_ = read_batches(data)
    for damaged, position in (
        (data + b"abc", len(data)),
        (flipped(data, first.size_in_bytes + 7, 1), first.size_in_bytes),
    ):
        path.write_bytes(damaged)
        assert would_start(LocalFileSystem(), [str(root)]).starts
        (found,) = noted(root)
        assert (found.severity.value, found.file, found.position) == ("warning", str(path), position)
