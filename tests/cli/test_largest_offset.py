"""A log that holds the largest offset there is, after which no record could follow: every command says what it is."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.log.logs import NOW
from tidelog.cli.main import cli
from tidelog.records import NewRecord, build_batch

LARGEST = 2**63 - 1


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="tidelog")


def a_root(home: Path, base: int, *counts: int) -> Path:
    """Batches of so many records each, in one segment."""
    directory = home / "orders-0"
    directory.mkdir()
    data, first = b"", base
    for count in counts:
        batch = bytearray(build_batch([NewRecord(b"k", b"v", NOW)] * count, partition_leader_epoch=0))
        batch[:8] = first.to_bytes(8, "big")
        data, first = data + bytes(batch), first + count
    (directory / f"{base:020}.log").write_bytes(data)
    return home


@pytest.mark.parametrize(("base", "last"), [(LARGEST, 4), (LARGEST - 1, 4), (LARGEST - 3, 4), (LARGEST - 5, 6)])
def test_a_batch_that_ends_beyond_the_offsets_is_damage_to_every_command(tmp_path: Path, base: int, last: int) -> None:
    root, reach = a_root(tmp_path, base, last), base + last - 1
    for way in ((), ("--salvage",), ("--no-verify",), ("-o", "jsonl")):
        done = run("cat", str(root), "--topic", "orders", *way)
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"position 0: offset {reach}: the largest that a record can have is {LARGEST - 1}" in done.stderr
    assert run("ls", str(root)).exit_code == 0
    done = run("fsck", str(root), "--json")
    assert done.exit_code == 1
    assert '"LOG-ORDER"' in done.stdout
    assert f"offsets {base} to {reach}: the largest that a record can have is {LARGEST - 1}" in done.stdout
    done = run("recover", str(root))
    assert f"offsets {base} to {reach}" in done.stdout


def test_what_is_before_it_is_read(tmp_path: Path) -> None:
    root = a_root(tmp_path, LARGEST - 5, 2, 2, 2)
    done = run("cat", str(root), "--topic", "orders")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 4)
    assert f"which held offset {LARGEST - 1} and what follows it" in done.stderr


def test_a_log_may_end_at_the_largest_offset(tmp_path: Path) -> None:
    root = a_root(tmp_path, LARGEST - 4, 4)
    done = run("cat", str(root), "--topic", "orders")
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 4)
    assert "LOG-ORDER" not in run("fsck", str(root)).stdout
