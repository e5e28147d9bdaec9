"""What a check finds, by the places where it is found."""

import json
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.world import NOW, world
from tests.golden import corpus
from tests.log.logs import sealed
from tidelog.errors import InvalidRequestError
from tidelog.fsck import CODES, Report, Severity, check, repair
from tidelog.fsck.places import find_places
from tidelog.log import LogConfig, LogManager, ManualClock, TopicPartition, UnifiedLog
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.locks import lock_path
from tidelog.log.names import UNFINISHED_WRITE
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.producer_snapshot import build_snapshot, parse_snapshot
from tidelog.log.write_journal import WriteJournal, WriteKind, write_journal
from tidelog.records import NewRecord, build_batch, read_batches
from tidelog.records.checksum import crc32c_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def checked(path: Path, *, deep: bool = False) -> Report:
    return check(str(path), deep=deep)


def found(path: Path, *, deep: bool = True) -> list[tuple[str, str, int | None]]:
    """Code, file and position of all that is worse than info."""
    return [
        (finding.code, finding.file.removeprefix(f"{path}/"), finding.position)
        for finding in check(str(path), deep=deep).findings
        if finding.severity is not Severity.INFO
    ]


def batch_starts(path: Path) -> list[int]:
    starts = [0]
    for batch in read_batches(path.read_bytes()):
        starts.append(starts[-1] + batch.size_in_bytes)
    return starts[:-1]


# -- the log ---------------------------------------------------------------------------------------------------------


def test_one_flipped_bit_is_one_finding_with_its_bytes_and_offsets(root: Path) -> None:
    log = segment(root)
    starts = batch_starts(log)
    flip(log, starts[2] + 40)
    (finding,) = [one for one in checked(root).findings if one.severity is Severity.ERROR]
    assert (finding.code, finding.position, finding.size) == ("LOG-CRC", starts[2], starts[3] - starts[2])
    assert finding.offsets == (4, 5)
    assert str(finding.topic_partition) == "orders-0"
    assert "stored crc" in finding.message


def test_a_damaged_length_hides_no_batch_behind_it(root: Path) -> None:
    log = segment(root)
    starts = batch_starts(log)
    flip(log, starts[1] + 9, bit=4)
    (finding,) = [one for one in checked(root).findings if one.severity is Severity.ERROR]
    assert (finding.code, finding.position, finding.size) == ("LOG-LENGTH", starts[1], starts[2] - starts[1])


def test_a_torn_tail_of_the_last_segment_is_a_warning_and_of_another_an_error(root: Path) -> None:
    for number, code, severity in ((5, "LOG-TAIL", "warning"), (1, "LOG-TORN", "error")):
        log = segment(root, number)
        log.write_bytes(log.read_bytes()[:-10])
        findings = [one for one in checked(root).findings if one.file == str(log)]
        assert [(one.code, one.severity) for one in findings] == [(code, severity)]


def test_zeros_behind_the_last_batch_keep_kafka_from_starting_only_after_a_clean_stop(root: Path) -> None:
    log = segment(root, 5)
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(100))
    assert ("LOG-ZEROS", f"orders-0/{log.name}", size) in found(root)
    (root / ".kafka_cleanshutdown").unlink()
    severities = {one.code: one.severity for one in checked(root).findings}
    assert severities["LOG-ZEROS"] is Severity.WARNING


def test_an_offset_that_no_checksum_covers_is_known_from_the_neighbours(root: Path) -> None:
    log = segment(root)
    start = batch_starts(log)[3]
    flip(log, start + 7, bit=5)
    (finding,) = [one for one in checked(root).findings if one.severity is Severity.ERROR and one.file == str(log)]
    assert (finding.code, finding.position, finding.offsets) == ("LOG-OFFSET", start, (6, 7))


def test_a_leader_epoch_is_held_to_the_epoch_checkpoint(root: Path) -> None:
    log = segment(root, 3)
    flip(log, batch_starts(log)[2] + 15, bit=3)
    assert ("LOG-EPOCH", f"orders-0/{log.name}", batch_starts(log)[2]) in found(root)


def test_two_exchanged_segments_are_told_from_damage(root: Path) -> None:
    one, two = segment(root, 1), segment(root, 3)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    told = [(code, name) for code, name, _ in found(root) if code.startswith("LOG-")]
    assert told == [("LOG-RANGE", f"orders-0/{one.name}"), ("LOG-RANGE", f"orders-0/{two.name}")]


def test_a_missing_segment_is_a_gap_unless_the_topic_is_compacted(root: Path) -> None:
    for path in (root / "orders-0").glob(f"{29:020}.*"):
        path.unlink()
    bad = [one for one in checked(root).findings if one.severity is not Severity.INFO]
    assert ("LOG-GAP", Severity.WARNING, (29, 43)) in [(one.code, one.severity, one.offsets) for one in bad]
    gaps = [one for one in checked(root).findings if one.code == "LOG-GAP" and "keys-0" in one.file]
    assert gaps
    assert {one.severity for one in gaps} == {Severity.INFO}


def test_records_that_cannot_be_read_are_found_by_a_deep_look_only(tmp_path: Path) -> None:
    with UnifiedLog.open(tmp_path / "orders-0", clock=ManualClock(0)) as log:
        log.append([NewRecord(b"k", b"value", 5)])
    path = segment(tmp_path)
    batch = bytearray(path.read_bytes())
    batch[61] += 2  # the length of its only record
    batch[17:21] = crc32c_of(batch[21:]).to_bytes(4, "big")
    path.write_bytes(batch)
    assert found(tmp_path, deep=False) == []
    assert [code for code, _, _ in found(tmp_path)] == ["LOG-RECORDS"]


def test_a_marker_that_cannot_be_read_is_found_by_every_look(root: Path) -> None:
    log = segment(root, 5)
    batches = list(read_batches(log.read_bytes()))
    number = max(number for number, batch in enumerate(batches) if batch.is_control)
    start, size = batch_starts(log)[number], len(batches[number].buffer)
    data = log.read_bytes()
    bad = sealed(data[start : start + size], {size - 9: 9})  # a record of an unknown type
    log.write_bytes(data[:start] + bad + data[start + size :])
    (told,) = [one for one in check(root).findings if one.code == "LOG-RECORDS"]
    assert (told.severity, told.position, told.size) == (Severity.ERROR, start, size)
    assert told.message.startswith("a transaction marker that cannot be read: ")
    assert ("LOG-RECORDS", f"orders-0/{log.name}", start) in found(root)


# -- what lies beside it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "position", "code"),
    [
        (".index", 2, "IDX-ORDER"),
        (".index", 7, "IDX-ENTRY"),
        (".timeindex", 7, "TIX-ENTRY"),
        (".timeindex", 10, "TIX-ORDER"),
        (".txnindex", 9, "TXN-ENTRY"),
        (".txnindex", 25, "TXN-ENTRY"),
        (".txnindex", 1, "TXN-VERSION"),
        (".snapshot", 20, "SNP-FORMAT"),
    ],
)
def test_a_flipped_bit_beside_the_log_is_found(root: Path, suffix: str, position: int, code: str) -> None:
    path = segment(root, 1, suffix)
    flip(path, position)
    assert code in [found_code for found_code, name, _ in found(root) if name.endswith(path.name)]


def test_indexes_that_every_release_wrote_are_taken_as_they_are() -> None:
    assert checked(corpus.case("index-content"), deep=True).findings == []


@pytest.mark.parametrize("case", ["1-codecs", "2-records", "3-rolls", "4-transactions", "5-compaction", "7-lookups"])
def test_what_kafka_wrote_is_clean(case: str) -> None:
    report = checked(corpus.case(f"kafka-4.3/{case}"), deep=True)
    assert report.codes() <= {"ROOT-META"}  # these images come without the file
    assert report.counts["batches"] > 40


def test_indexes_that_a_compaction_has_still_to_rename_are_not_missing(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    for suffix in (".index", ".timeindex", ".txnindex"):
        path = segment(root, 1).with_suffix(suffix)
        path.rename(path.with_name(f"{path.name}.swap"))
    assert checked(root).codes() == set()


def test_an_index_without_its_segment_is_no_error_in_a_copy_that_a_crash_ended(root: Path) -> None:
    future = root / f"new-0.{'0' * 32}-future"
    future.mkdir()
    (future / f"{0:020}.index").write_bytes(b"")
    assert "SEG-NO-LOG" in checked(root).codes()
    (root / ".kafka_cleanshutdown").unlink()
    assert "SEG-NO-LOG" not in checked(root).codes()


def severities(root: Path) -> dict[str, Severity]:
    return {one.code: one.severity for one in checked(root).findings if one.severity is not Severity.INFO}


def test_indexes_that_kafka_rebuilds_are_no_error_when_they_are_missing(root: Path) -> None:
    """Without an offset index Kafka reads the segment and makes all of its indexes."""
    for suffix in (".timeindex", ".txnindex"):
        (segment(root, 1, ".log").with_suffix(suffix)).unlink()
    assert severities(root) == {"TIX-MISSING": Severity.ERROR, "TXN-MISSING": Severity.ERROR}
    segment(root, 1, ".log").with_suffix(".index").unlink()
    assert severities(root) == dict.fromkeys(("IDX-MISSING", "TIX-MISSING", "TXN-MISSING"), Severity.WARNING)


# What Kafka itself has left of logs that were damaged before it started: it did not look, or did not mind.
LEFT_BY_KAFKA = {
    "clean/after/c-empty-log-0": {"IDX-ENTRY", "TIX-ENTRY", "TXN-ENTRY"},
    "clean/after/c-flip-noindex-0": {"LOG-GAP"},
    "clean/after/c-hdr-epoch-0": {"LOG-EPOCH"},
    "clean/after/c-index-garbage-0": {"IDX-ENTRY"},
    "clean/after/c-index-short-0": {"IDX-SIZE"},
    "clean/after/c-nosnapshot-0": {"SNP-STATE"},
    "clean/after/c-notimeindex-0": {"TIX-STALE"},
    "clean/after/c-notxnindex-0": {"TXN-MISSING"},
    "clean/after/c-swap-0": {"LOG-GAP", "TIX-STALE", "TXN-MISSING"},
    "clean/after/c-timeindex-empty-0": {"TIX-STALE"},
    "clean/after/c-torn-boundary-0": {"CHK-RANGE", "EPO-ENTRY", "IDX-ENTRY"},
    "unclean/after/u-dup-tail-0": {"CHK-RANGE", "EPO-ENTRY", "LOG-ORDER"},
    "unclean/after/u-extra-0": {"PAR-FOREIGN"},
    "unclean/after/u-hdr-back-0": {"LOG-ORDER"},
    "unclean/after/u-hdr-epoch-0": {"LOG-EPOCH"},
    "unclean/after/u-hdr-gap-0": {"LOG-GAP"},
    "unclean/after/u-index-garbage-0": {"IDX-ENTRY"},
    "unclean/after/u-index-odd-0": {"IDX-SIZE"},
    "unclean/after/u-no-middle-0": {"LOG-GAP"},
    "unclean/after/u-notxnindex-rp-0": {"TXN-MISSING"},
    "unclean/after/u-swap-0": {"LOG-GAP"},
    "unclean/after/u-txn-partial-0": {"TXN-SIZE"},
    "unclean/after/u-txn-version-0": {"TXN-VERSION"},
}


@pytest.mark.parametrize("case", corpus.case_names())
def test_every_partition_that_a_release_of_kafka_wrote_is_clean(case: str) -> None:
    for partition in corpus.undamaged_partitions(case):
        report = checked(partition.path, deep=True)
        left = LEFT_BY_KAFKA.get(partition.name, set()) if case == "kafka-4.3/6-recovery" else set()
        told = [(one.code, one.file, one.message) for one in report.findings if one.severity is not Severity.INFO]
        assert report.codes() - {"SEG-DOUBT"} == left, told


def test_the_first_batch_behind_a_snapshot_of_1_0_0_may_be_in_it_and_no_other() -> None:
    """It was written while the marker at 31 was being appended: the transaction is over in it."""
    report = checked(corpus.case("dump-formats") / "written-by-1.0.0" / "mixed-0", deep=True)
    assert report.codes() == set()


def test_a_gap_in_the_old_formats_is_a_warning_only_where_a_cleaner_would_have_told(root: Path) -> None:
    log = segment(root, 0, partition="old-0")
    starts = batch_starts(log)
    data = log.read_bytes()
    log.write_bytes(data[: starts[0]] + data[starts[1] :])
    assert "LOG-GAP" in checked(root / "old-0").codes()  # the cleaner's checkpoint does not know this log
    (root / "cleaner-offset-checkpoint").unlink()
    assert "LOG-GAP" not in checked(root / "old-0").codes()


def test_a_log_start_that_was_moved_forward_is_known_by_the_leader_epochs(root: Path) -> None:
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 1 7\n")
    assert ("EPO-START", "orders-1/leader-epoch-checkpoint", None) in found(root)


def test_a_kill_during_retention_is_no_finding_after_the_next_clean_stop(tmp_path: Path) -> None:
    """The epoch still begins where the deleted segments did: neither our start nor Kafka's moves it."""
    clock, partition = ManualClock(NOW), TopicPartition("orders", 0)
    config = LogConfig(retention_ms=-1, segment_bytes=300)
    manager = LogManager.open(str(tmp_path), config, clock=clock)
    log = manager.get_or_create(partition)
    for _ in range(6):
        log.append_as_leader(memoryview(bytearray(build_batch([NewRecord(b"k", b"v" * 100, NOW)]))), 0)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(3)
    log.delete_old_segments()
    for root in manager.roots:  # the kill
        root.unlock()
        for one in root.logs.values():
            one.release()
    for _ in range(2):
        with LogManager.open(str(tmp_path), config, clock=clock) as again:
            assert again.get(partition).log_start_offset == 3
        report = checked(tmp_path)
        assert report.codes() == set()
        assert [one.severity for one in report.findings if one.code == "EPO-START"] == [Severity.INFO]


def test_what_kafka_left_of_damaged_logs_is_found() -> None:
    variants = {
        "c-flip-active-0": "LOG-CRC", "c-index-garbage-0": "IDX-ENTRY", "c-notimeindex-0": "TIX-STALE",
        "c-notxnindex-0": "TXN-MISSING", "c-nosnapshot-0": "SNP-STATE", "c-hdr-epoch-0": "LOG-EPOCH",
        "c-torn-0": "LOG-TAIL",
    }  # fmt: skip
    report = checked(corpus.case("kafka-4.3/6-recovery") / "clean" / "after", deep=True)
    for name, code in variants.items():
        assert code in {one.code for one in report.findings if f"/{name}/" in one.file}, name


def test_a_snapshot_that_lacks_a_producer_is_found_where_everything_is_read(root: Path) -> None:
    first, second = segment(root, 0, ".snapshot"), segment(root, 2, ".snapshot")
    second.write_bytes(first.read_bytes())
    assert "SNP-STATE" not in {code for code, _, _ in found(root, deep=False)}
    assert ("SNP-STATE", f"orders-0/{second.name}", None) in found(root)


SENT_S = 1_700_000_000
OLD, YOUNG, BUSY = 1, 2, 3  # producers; the last has an open transaction


@pytest.fixture
def noted(root: Path) -> Path:
    """A snapshot with producers that wrote a minute, and ten seconds, before it was written."""
    clock = ManualClock(SENT_S * 1000)
    with UnifiedLog.open(root / "sent-0", clock=clock) as log:
        for producer, after_s in ((OLD, 0), (YOUNG, 50), (BUSY, 51)):
            record = NewRecord(b"k", b"v", (SENT_S + after_s) * 1000)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            data = build_batch([record], **options, is_transactional=producer == BUSY)
            log.append_as_leader(memoryview(data), 0)
        log.roll()
        log.append(NewRecord(b"k", b"v", (SENT_S + 61) * 1000))
    return segment(root, 0, ".snapshot", "sent-0")


def known_to(path: Path, producers: Collection[int], written_s: int = SENT_S + 60) -> list[str]:
    """What is said of a snapshot that knows these producers only, and was written at this time."""
    entries = parse_snapshot(path.read_bytes())
    assert {entry.producer_id for entry in entries} == {OLD, YOUNG, BUSY}
    path.write_bytes(build_snapshot([entry for entry in entries if entry.producer_id in producers]))
    os.utime(path, (written_s, written_s))
    found = [one for one in checked(path.parent, deep=True).findings if one.file == str(path)]
    return [f"{one.severity} {one.code}" for one in found]


@pytest.mark.parametrize("producers", [(YOUNG, BUSY), (BUSY,)])
def test_a_snapshot_may_lack_producers_that_were_silent_for_longest(noted: Path, producers: tuple[int, ...]) -> None:
    """A broker forgets them after producer.id.expiration.ms, which may be seconds. A repair leaves the snapshot."""
    assert known_to(noted, producers) == ["info SNP-EXPIRED"]
    before = noted.read_bytes()
    repair(str(noted.parent.parent))
    assert noted.read_bytes() == before


def test_a_snapshot_has_whom_it_needs(noted: Path) -> None:
    assert known_to(noted, (OLD, YOUNG, BUSY)) == []


def test_a_snapshot_may_not_lack_a_producer_and_know_one_that_was_silent_for_longer(noted: Path) -> None:
    assert known_to(noted, (OLD, BUSY)) == ["error SNP-STATE"]


def test_a_snapshot_may_not_lack_a_producer_whose_transaction_is_open(noted: Path) -> None:
    assert known_to(noted, (OLD, YOUNG)) == ["error SNP-STATE"]


def test_a_snapshot_may_not_lack_a_producer_that_has_just_written(noted: Path) -> None:
    assert known_to(noted, (BUSY,), SENT_S + 50) == ["error SNP-STATE"]


def test_nothing_is_said_of_producers_that_were_silent_for_a_day(noted: Path) -> None:
    assert known_to(noted, (BUSY,), SENT_S + 90_000) == []


# -- roots -----------------------------------------------------------------------------------------------------------


def test_a_directory_that_is_no_partition_keeps_kafka_from_starting(root: Path) -> None:
    (root / "backup").mkdir()
    (root / "notes.txt").write_text("mine")
    assert [code for code, _, _ in found(root)] == ["ROOT-FOREIGN"]
    assert "ROOT-FILE" in {one.code for one in checked(root).findings}


def test_checkpoints_are_held_to_the_logs(root: Path) -> None:
    (root / "replication-offset-checkpoint").write_text("0\n2\norders 0 9000\ngone 3 1\n")
    (root / "log-start-offset-checkpoint").write_text("0\n2\norders 1 5\n")
    assert Counter(code for code, _, _ in found(root)) == {"CHK-RANGE": 1, "CHK-UNKNOWN": 1, "CHK-FORMAT": 1}


def test_a_log_that_lost_its_end_is_known_by_the_recovery_point(root: Path) -> None:
    for path in (root / "orders-1").glob(f"{28:020}.*"):
        path.unlink()
    assert ("CHK-RANGE", "recovery-point-offset-checkpoint", None) in found(root)


def test_a_partition_directory_by_itself_is_checked_with_what_its_root_says(root: Path) -> None:
    report = checked(root / "orders-1")
    assert (report.counts["partitions"], report.is_clean) == (1, True)
    flip(segment(root, 0, partition="orders-1"), 70)
    assert checked(root / "orders-1").codes() == {"LOG-CRC"}


def test_a_tree_of_roots_is_checked_as_a_whole(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        a_root(tmp_path / name)
    assert checked(tmp_path).counts["partitions"] == 8


def test_a_place_without_logs_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="holds no log directory"):
        checked(tmp_path)
    with pytest.raises(InvalidRequestError, match="is no directory"):
        checked(tmp_path / "nothing")


def test_nothing_is_written_and_a_root_in_use_can_be_looked_at(root: Path) -> None:
    flip(segment(root), 70)
    (root / ".kafka_cleanshutdown").unlink()
    lock = lock_path(join(str(root), ".lock"))
    before = contents(root)
    try:
        report = checked(root, deep=True)
    finally:
        lock.release()
    assert contents(root) == before
    assert [one.message for one in report.findings if one.code == "ROOT-UNCLEAN"] == ["a broker has it open"]


# -- the report ------------------------------------------------------------------------------------------------------


def test_a_report_is_json_and_each_finding_tells_code_place_and_remedy(root: Path) -> None:
    flip(segment(root), 70)
    told = json.loads(json.dumps(checked(root).to_dict()))
    (finding,) = [one for one in told["findings"] if one["severity"] == "error"]
    assert (told["clean"], told["errors"], told["partitions"]) == (False, 1, 4)
    assert (finding["topic"], finding["partition"], finding["position"]) == ("orders", 0, 0)
    assert finding["remedy"] == CODES["LOG-CRC"].remedy


def test_threads_find_what_one_finds(root: Path) -> None:
    for number in range(5):
        flip(segment(root, number), 100 + number)
    shutil.copytree(root / "orders-0", root / "orders-7")
    one, several = check(str(root), jobs=1), check(str(root), jobs=4)
    assert one.findings == several.findings
    assert len(one.findings) > 10


def test_a_log_that_grows_rolls_and_is_cleaned_meanwhile_is_clean(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / f"{name}-offset-checkpoint").write_text("0\n0\n")
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100, segment_index_bytes=600, retention_bytes=12_000)
    log = UnifiedLog.open(tmp_path / "orders-0", config, topic_id=uuid.UUID(int=1 << 100), clock=ManualClock(0))
    log.append([NewRecord(b"key", b"value", 5)])  # with the first append the topic id is there
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            log.append([NewRecord(b"key", b"value" * 9, 5) for _ in range(3)])
            log.delete_old_segments()
            log.tick()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        looks = 0
        while looks < 10 or log.log_end_offset <= 100:
            looks += 1
            report = checked(tmp_path, deep=True)
            assert report.codes() == set(), [(one.code, one.file, one.message) for one in report.findings]
    finally:
        stop.set()
        writer.join()
    log.close()


def test_an_interrupted_load_and_a_journal_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_journal(LocalFileSystem(), str(tmp_path), WriteJournal(WriteKind.LOAD))
    found = {finding.code: finding for finding in check(str(tmp_path)).findings}
    assert (found["ROOT-LOAD"].severity, "ROOT-FOREIGN" in found) == (Severity.ERROR, False)
    assert "Kafka does not start" in found["ROOT-LOAD"].message
    assert "tidelog recover" in found["ROOT-LOAD"].remedy
    (tmp_path / UNFINISHED_WRITE / "journal").write_text('{"version": 99}')
    found = {finding.code: finding for finding in check(str(tmp_path)).findings}
    assert "it is of version 99" in found["ROOT-LOAD"].message


# -- the identity of a root --------------------------------------------------------------------------------------------


def test_a_directory_that_was_never_formatted_lacks_nothing(root: Path) -> None:
    (root / "meta.properties").unlink()
    (root / ".lock").touch()
    report = check(str(root))
    (told,) = [one for one in report.findings if one.code == "ROOT-META"]
    assert (told.severity, report.is_clean) == (Severity.INFO, True)
    assert "kafka-storage.sh format" in told.message
    assert check(str(root / "orders-0")).is_clean
    for path in root.iterdir():
        if path.is_file():
            path.unlink()
    assert check(str(root)).is_clean


@pytest.mark.parametrize("sign", ["bootstrap.checkpoint", "__cluster_metadata-0"])
def test_a_root_that_was_formatted_has_lost_its_identity(root: Path, sign: str) -> None:
    (root / "meta.properties").unlink()
    (root / sign).mkdir() if sign.endswith("-0") else (root / sign).touch()
    (told,) = [one for one in check(str(root)).findings if one.code == "ROOT-META"]
    assert told.severity is Severity.ERROR
    assert sign in told.message


# -- what is no regular file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "orders-0/00000000000000009999.log", "orders-0/00000000000000000000.index", "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata", "orders-0/00000000000000000015.snapshot", "recovery-point-offset-checkpoint",
        "meta.properties",
    ],
)  # fmt: skip
def test_a_pipe_under_the_name_of_a_file_is_told_and_nobody_waits_for_it(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    (told,) = [one for one in check(str(root), deep=True).findings if one.code == "FILE-READ"]
    assert (told.file, told.message) == (str(root / name), "not a regular file but a named pipe")


def test_a_lock_that_is_a_pipe_keeps_nobody_waiting(root: Path) -> None:
    os.mkfifo(root / ".lock")
    assert check(str(root)).is_clean


@pytest.mark.parametrize("name", ["notes", "recovery-point-offset-checkpoint", "orders-0/leader-epoch-checkpoint"])
def test_a_link_that_leads_to_itself_keeps_nothing_else_from_being_checked(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(root / name)
    flip(segment(root), 70)
    assert "LOG-CRC" in check(str(root)).codes()


def test_an_empty_name_is_refused_and_no_disk_is_looked_through() -> None:
    """What a variable holds that was never set, as in `tidelog fsck --repair "$LOGS"`."""
    for look in (lambda: find_places(world(), [""]), lambda: OfflineRoot("", fs=world())):
        with pytest.raises(InvalidRequestError, match="the name of a directory is empty"):
            look()


def test_roots_beside_a_partition_that_was_copied_there_are_checked(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "orders-0", tmp_path / "orders-0")
    flip(segment(root), 70)
    report = checked(tmp_path)
    assert (report.counts["roots"], "LOG-CRC" in report.codes()) == (2, True)
