"""Checkpoints and the clean-shutdown marker: what is accepted, what is written, and how."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tidelog.errors import CheckpointError, StorageError
from tidelog.log.checkpoints import CleanShutdownFile, EpochEntry, LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import TopicPartition
from tidelog.testing.disk import PowerLost, SimulatedFileSystem

OFFSETS = {
    TopicPartition("foo", 0): 5,
    TopicPartition("foo", 1): 10,
    TopicPartition("bar", 0): 2,
    TopicPartition("foo", 10): 2**63 - 1,
}


def offsets_of(path: Path, content: bytes) -> dict[TopicPartition, int]:
    path.joinpath("checkpoint").write_bytes(content)
    return OffsetCheckpoint(LocalFileSystem(), str(path / "checkpoint")).read()


def epochs_of(path: Path, content: bytes) -> list[EpochEntry]:
    path.joinpath("checkpoint").write_bytes(content)
    return LeaderEpochCheckpoint(LocalFileSystem(), str(path / "checkpoint")).read()


# -- offsets and epochs ----------------------------------------------------------------------------------------------


@behaviour("CKP-005")
def test_a_second_write_replaces_the_offsets_of_the_first(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    checkpoint.write(OFFSETS)
    assert checkpoint.read() == OFFSETS
    second = {TopicPartition("foo", 2): 15, TopicPartition("baz", 0): 7}
    checkpoint.write(second)
    assert checkpoint.read() == second
    assert OffsetCheckpoint(LocalFileSystem(), checkpoint.path).read() == second


def test_offsets_are_written_in_the_order_of_topic_and_partition(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    checkpoint.write(OFFSETS)
    lines = ["0", "4", "bar 0 2", "foo 0 5", "foo 1 10", "foo 10 9223372036854775807", ""]
    assert (tmp_path / "checkpoint").read_bytes() == "\n".join(lines).encode()


@behaviour("CKP-006")
def test_a_fresh_checkpoint_and_one_of_no_offsets_are_empty(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    assert checkpoint.read() == {}
    checkpoint.create()
    assert (tmp_path / "checkpoint").read_bytes() == b""
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert (tmp_path / "checkpoint").read_bytes() == b"0\n0\n"
    assert checkpoint.read() == {}


def test_creating_a_checkpoint_that_is_there_leaves_it_alone(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    checkpoint.write(OFFSETS)
    checkpoint.create()
    assert checkpoint.read() == OFFSETS


@behaviour("CKP-004")
def test_a_second_write_replaces_the_epochs_of_the_first(tmp_path: Path) -> None:
    checkpoint = LeaderEpochCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    checkpoint.write([EpochEntry(0, 1), EpochEntry(1, 2)])
    assert checkpoint.read() == [(0, 1), (1, 2)]
    checkpoint.write([EpochEntry(2, 3)])
    assert (tmp_path / "checkpoint").read_bytes() == b"0\n1\n2 3\n"
    assert LeaderEpochCheckpoint(LocalFileSystem(), checkpoint.path).read() == [(2, 3)]


def test_a_write_leaves_nothing_beside_the_file_and_takes_over_what_a_crash_left(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"0\n100\n" + b"leftover 0 1\n" * 100)
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "checkpoint"))
    checkpoint.write(OFFSETS)
    assert checkpoint.read() == OFFSETS
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_follows_its_directory(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "old" / "checkpoint"))
    with pytest.raises(StorageError):
        checkpoint.write(OFFSETS)
    (tmp_path / "new").mkdir()
    checkpoint.path = str(tmp_path / "new" / "checkpoint")
    checkpoint.write(OFFSETS)
    assert checkpoint.read() == OFFSETS


def test_what_reads_as_no_entries(tmp_path: Path) -> None:
    for content in (b"", b"0", b"0\n", b"0\r\n", b"0\n0", b"0\n0\n", b"+0\n-0\n"):
        assert offsets_of(tmp_path, content) == {}
        assert epochs_of(tmp_path, content) == []


def test_white_space_and_line_ends_may_be_others(tmp_path: Path) -> None:
    expected = {TopicPartition("t", 1): 5, TopicPartition("u", 0): -1}
    for content in (b"0\n2\nt \t1  5\nu 0 -1", b"0\r\n2\r\nt 1 5 \t\r\nu 0 -1\r\n", b"0\r2\rt 01 +5\ru\x0b0\x0c-1\r"):
        assert offsets_of(tmp_path, content) == expected
    assert epochs_of(tmp_path, b"0\n1\n3\t \t17") == [(3, 17)]


def test_the_last_entry_of_a_partition_holds(tmp_path: Path) -> None:
    assert offsets_of(tmp_path, b"0\n2\nt 0 1\nt 0 2\n") == {TopicPartition("t", 0): 2}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"1\n0\n", "version 1"),
        (b"-1\n0\n", "version -1"),
        (b"\n", "not a number"),
        (b" 0\n0\n", "not a number"),
        (b"zero\n0\n", "not a number"),
        (b"0\n1x\nt 0 1\n", "not a number"),
        (b"0\n1_0\n", "not a number"),
        (b"0\n2147483648\n", "not a number of 32 bits"),
        (b"0\n-1\n", "0 entries where -1"),
        (b"0\n2\nt 0 1\n", "1 entries where 2"),
        (b"0\n1\nt 0 1\nt 1 1\n", "2 entries where 1"),
        (b"0\n2147483647\nt 0 1\n", "1 entries where 2147483647"),
        (b"0\n1\nt 0 1\n\n", "0 fields"),
        (b"0\n1\n t 0 1\n", "4 fields"),
        (b"0\n1\nt 0\n", "2 fields"),
        (b"0\n1\nt 0 1 2\n", "4 fields"),
        (b"0\n1\nt x 1\n", "not a number"),
        (b"0\n1\nt 2147483648 1\n", "not a number of 32 bits"),
        (b"0\n1\nt 0 9223372036854775808\n", "not a number of 64 bits"),
        (b"0\n1\nt 0 " + b"9" * 10_000, "not a number of 64 bits"),
        (b"0\n1\nt 0 \xf0\x9d\x9f\x9b\n", "not a number"),
        (b"0\n1\n\xff 0 1\n", "not UTF-8 at position 4"),
        (b"\0" * 20, "not a number"),
    ],
)
def test_anything_else_is_refused_with_the_error_code_of_storage(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=complaint) as raised:
        offsets_of(tmp_path, content)
    assert str(raised.value).startswith(str(tmp_path / "checkpoint"))
    assert raised.value.error_code == 56


@pytest.mark.parametrize("entry", [b"1", b"1 2 3", b"1 x", b"2147483648 0", b"0 9223372036854775808", b"1.0 2"])
def test_an_epoch_has_a_number_of_32_bits_and_an_offset(tmp_path: Path, entry: bytes) -> None:
    with pytest.raises(CheckpointError):
        epochs_of(tmp_path, b"0\n1\n" + entry)


@given(st.binary(max_size=60) | st.text(alphabet="0123 \n\r\tt-+", max_size=40).map(str.encode))
def test_bytes_of_any_kind_raise_nothing_but_our_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.getbasetemp()
    for read in (offsets_of, epochs_of):
        try:
            found = read(directory, content)
        except CheckpointError:
            continue
        assert len(found) <= content.count(b"\n") + content.count(b"\r")


# -- what Kafka wrote ------------------------------------------------------------------------------------------------


def golden(name: str) -> list[Path]:
    return [path for case in corpus.case_names() for path in sorted(corpus.case(case).rglob(name))]


def test_every_leader_epoch_checkpoint_of_the_corpus_is_written_back_the_same(tmp_path: Path) -> None:
    fs, files = LocalFileSystem(), golden("leader-epoch-checkpoint")
    assert len(files) == 384
    for file in files:
        entries = LeaderEpochCheckpoint(fs, str(file)).read()
        ours = LeaderEpochCheckpoint(fs, str(tmp_path / "ours"))
        ours.write(entries)
        if file.stat().st_size == 0:  # created, and not yet written
            assert entries == []
        else:
            assert (file, Path(ours.path).read_bytes()) == (file, file.read_bytes())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("recovery-point-offset-checkpoint", 22),
        ("log-start-offset-checkpoint", 22),
        ("replication-offset-checkpoint", 22),
        ("cleaner-offset-checkpoint", 21),
    ],
)
def test_every_offset_checkpoint_of_the_corpus_is_written_back_the_same(tmp_path: Path, name: str, count: int) -> None:
    fs, files, entries = LocalFileSystem(), golden(name), 0
    assert len(files) == count
    for file in files:
        offsets = OffsetCheckpoint(fs, str(file)).read()
        ours = OffsetCheckpoint(fs, str(tmp_path / "ours"))
        ours.write(offsets)
        written, kafkas = Path(ours.path).read_bytes().splitlines(True), file.read_bytes().splitlines(True)
        if kafkas:
            assert (file, written[:2], sorted(written[2:])) == (file, kafkas[:2], sorted(kafkas[2:]))
        entries += len(offsets)
    assert entries > 0


def test_every_clean_shutdown_file_of_the_corpus_is_written_back_the_same(tmp_path: Path) -> None:
    fs, files = LocalFileSystem(), golden(".kafka_cleanshutdown")
    assert len(files) == 20
    for file in files:
        epoch = CleanShutdownFile(fs, str(file.parent)).read()
        if file.stat().st_size == 0:  # of a release before 3.7
            assert epoch is None
        else:
            assert epoch is not None
            CleanShutdownFile(fs, str(tmp_path)).write(epoch)
            assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == file.read_bytes()


# -- crashes ---------------------------------------------------------------------------------------------------------


def crashes(
    prepare: Callable[[SimulatedFileSystem], None], act: Callable[[SimulatedFileSystem], None], unordered: bool
) -> Iterator[tuple[bool, SimulatedFileSystem]]:
    """Every disk that `act` can leave behind when the power goes at any of its calls; whether it had returned."""
    for cut in range(1, 100):
        disk = SimulatedFileSystem(unordered_directories=unordered)
        disk.make_directory("/root")
        prepare(disk)
        disk.sync_all()
        disk.cut_at(disk.calls + cut)
        try:
            act(disk)
        except PowerLost:
            yield from ((False, disk.after_crash(Random(seed))) for seed in range(20))
        else:
            assert cut > 2  # it had been cut before it ended
            yield from ((True, disk.after_crash(Random(seed))) for seed in range(20))
            return


@pytest.mark.parametrize("unordered", [False, True])
def test_a_crash_leaves_the_old_offsets_or_the_new(unordered: bool) -> None:
    old = {TopicPartition("t", partition): 1 for partition in range(200)}
    new = {TopicPartition("t", partition): 2**62 for partition in range(100)}

    def write(offsets: dict[TopicPartition, int]) -> Callable[[SimulatedFileSystem], None]:
        return lambda disk: OffsetCheckpoint(disk, "/root/checkpoint").write(offsets)

    seen = set()
    for has_returned, disk in crashes(write(old), write(new), unordered):
        found = OffsetCheckpoint(disk, "/root/checkpoint").read()
        assert found == new or (found == old and not has_returned)
        seen.add(found == new)
        OffsetCheckpoint(disk, "/root/checkpoint").write(old)  # whatever lies about
        assert OffsetCheckpoint(disk, "/root/checkpoint").read() == old
    assert seen == {False, True}


@pytest.mark.parametrize("unordered", [False, True])
def test_a_marker_that_was_removed_does_not_come_back(unordered: bool) -> None:
    seen = set()
    for has_returned, disk in crashes(
        lambda disk: CleanShutdownFile(disk, "/root").write(10),
        lambda disk: CleanShutdownFile(disk, "/root").delete(),
        unordered,
    ):
        exists = CleanShutdownFile(disk, "/root").exists()
        assert not (exists and has_returned)
        seen.add(exists)
    assert seen == {False, True}


@pytest.mark.parametrize("unordered", [False, True])
def test_a_marker_that_was_left_stays(unordered: bool) -> None:
    for has_returned, disk in crashes(
        lambda disk: None, lambda disk: CleanShutdownFile(disk, "/root").write(10), unordered
    ):
        epoch = CleanShutdownFile(disk, "/root").read()
        assert epoch == 10 or (epoch is None and not has_returned)


# -- the clean-shutdown marker ---------------------------------------------------------------------------------------


@behaviour("CKP-001")
def test_a_clean_shutdown_file_is_written_read_and_deleted(tmp_path: Path) -> None:
    marker = CleanShutdownFile(LocalFileSystem(), str(tmp_path))
    marker.write(10)
    assert (marker.exists(), marker.read()) == (True, 10)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":10}'
    marker.delete()
    assert not marker.exists()
    assert list(tmp_path.iterdir()) == []
    marker.delete()  # again, which is harmless


@behaviour("CKP-002")
def test_no_clean_shutdown_file_names_no_epoch(tmp_path: Path) -> None:
    marker = CleanShutdownFile(LocalFileSystem(), str(tmp_path))
    assert (marker.exists(), marker.read()) == (False, None)


@behaviour("CKP-003")
def test_unknown_fields_of_a_clean_shutdown_file_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":10,"unknown":{"a":[1]}}')
    assert CleanShutdownFile(LocalFileSystem(), str(tmp_path)).read() == 10


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b"{}",
        b"\xff",
        b'{"brokerEpoch":null}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":' + b"9" * 5000 + b"}",
        b"[" * 200_000,
    ],
)
def test_the_marker_counts_whatever_is_in_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    marker = CleanShutdownFile(LocalFileSystem(), str(tmp_path))
    assert (marker.exists(), marker.read()) == (True, None)


def test_a_marker_replaces_a_longer_one(tmp_path: Path) -> None:
    marker = CleanShutdownFile(LocalFileSystem(), str(tmp_path))
    marker.write(1_000_000)
    marker.write()
    assert marker.read() == -1
