"""Recovery finishes commits, takes loads back and recovers logs; hostile journals touch nothing."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidelog
from tests.golden.corpus import case
from tests.log.journals import COMMIT, LOAD
from tests.spark.commits import ADDED, commit_here, values
from tests.spark.hostile_journals import a_home, look_at, run, snapshot
from tests.tables.loads import kill_in, load_here
from tidelog.cli.main import cli
from tidelog.errors import CheckpointError, InvalidRequestError, LockedError, StorageError, TidelogError
from tidelog.log import LogManager, TopicPartition
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.files import join
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, JOURNAL_FILE, LOCK_FILE, OLD_JOURNALS, UNFINISHED_WRITE
from tidelog.log.write_journal import (
    PartitionNote,
    WriteJournal,
    WriteKind,
    ensure_no_unfinished_write,
    read_journal,
    remove_journal,
    write_journal,
)
from tidelog.records import NewRecord
from tidelog.spark.option_values import OptionValues
from tidelog.spark.places import Places
from tidelog.spark.recovery import recover

FS = LocalFileSystem()
ORDERS = TopicPartition("orders", 0)
HIDING = WriteJournal(WriteKind.LOAD, b"{}", partitions={ORDERS: PartitionNote(False, True, 1, 0, 1, 1)})


def a_root(root: Path, records: int = 3, topic: str = "orders") -> Path:
    """A topic of one partition, closed in good order, without a high watermark that says more than a journal."""
    with LogManager.open(str(root)) as manager:
        log = manager.get_or_create(TopicPartition(topic, 0))
        for number in range(records):
            log.append(NewRecord(b"k", b"v%d" % number))
    (root / "replication-offset-checkpoint").unlink()
    return root


def killed(tmp_path: Path, write: Callable[[str, int], int]) -> Path:
    """A root in which a load, or a commit, was killed when some of it was appended."""
    calls = write(str(tmp_path / f"{write.__name__}-whole"), 0)
    root = tmp_path / write.__name__
    kill_in(write, root, calls * 6 // 10)
    assert (root / UNFINISHED_WRITE / JOURNAL_FILE).exists()
    return root


def test_a_killed_commit_is_finished_and_a_killed_load_taken_back(tmp_path: Path) -> None:
    commit, load = killed(tmp_path, commit_here), killed(tmp_path, load_here)
    for root in (commit, load):
        with pytest.raises(InvalidRequestError, match="a write was interrupted; run `tidelog recover"):
            LogManager.open(str(root))
        assert [path.name for path in root.iterdir() if path.name.startswith("orders-") and path.name[-2] == "-"]
        assert tidelog.open(str(root)).topics == ()  # half of a topic is none
    done = CliRunner().invoke(cli, ["recover", str(commit), f"{load}/"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{commit}: a write of Spark's into orders was interrupted and is finished",
        f"{load}: a load into orders was interrupted and is taken back",
    ]
    assert values(FS, str(commit)) == ADDED
    assert [path.name for path in load.iterdir()] == []  # it was new
    assert not [path.name for path in commit.iterdir() if path.name.endswith("-delete") or path.name == LOCK_FILE]
    again = CliRunner().invoke(cli, ["recover", str(commit), "--json"])
    nothing = dict.fromkeys(("taken_back", "finished", "recovered", "rejected"), False)
    lists: dict[str, list[object]] = {"cuts": [], "losses": [], "notices": []}
    assert json.loads(again.stdout) == {"root": str(commit), **nothing, **lists}


def test_a_repair_settles_first_and_a_rehearsal_tells(tmp_path: Path) -> None:
    root = killed(tmp_path, commit_here)
    dry = CliRunner().invoke(cli, ["fsck", str(root), "--repair", "--dry-run"])
    assert (dry.exit_code, dry.stderr.count("\n")) == (3, 1), dry.stderr
    assert f"run `tidelog recover {root}` first" in dry.stderr
    done = CliRunner().invoke(cli, ["fsck", str(root), "--repair"])
    assert "was interrupted and is finished" in done.stderr
    assert values(FS, str(root)) == ADDED


@pytest.mark.parametrize(
    ("write", "deed"), [(load_here, "it rolls the load back"), (commit_here, "it finishes the write")]
)
def test_a_check_advises_to_settle_an_unfinished_write_first(
    tmp_path: Path, write: Callable[[str, int], int], deed: str
) -> None:
    root = killed(tmp_path, write)
    lines = CliRunner().invoke(cli, ["fsck", str(root)]).stdout.splitlines()
    assert f"ROOT-LOAD: run `tidelog recover {root}` first: {deed}" in lines
    assert lines[-1] == f"after that, `tidelog fsck {root} --repair --dry-run` prints what can be repaired"
    assert CliRunner().invoke(cli, ["recover", str(root)]).exit_code == 0


def test_a_damaged_journal_is_called_damaged(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    write_journal(FS, str(root), HIDING)
    journal = root / UNFINISHED_WRITE / JOURNAL_FILE
    whole = journal.read_bytes()
    for content in (whole[:-10], whole[:30], b""):
        journal.write_bytes(content)
        for command in (["recover", str(root)], ["fsck", "--repair", str(root)]):
            done = CliRunner().invoke(cli, command)
            assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.stderr
            assert "the journal of an unfinished write is damaged: " in done.stderr
            assert f"restore {journal} or the log directory from a backup" in done.stderr
            assert "release" not in done.stderr
    journal.unlink()
    assert f"restore {journal} or" in CliRunner().invoke(cli, ["recover", str(root)]).stderr


def test_logs_are_recovered_after_an_unclean_stop(tmp_path: Path) -> None:
    root = a_root(tmp_path / "one")
    (root / ".kafka_cleanshutdown").unlink()
    log = next((root / "orders-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:40])
    other = a_root(tmp_path / "two", topic="other")
    first, second = recover([str(root), str(other)])
    assert (first.were_logs_recovered, second.were_logs_recovered) == (True, False)
    assert str(first) == f"{root}: there was no clean stop and the logs are recovered"
    assert log.read_bytes() == whole
    assert (root / ".kafka_cleanshutdown").exists()


def marks_of(root: Path) -> dict[int, tuple[int, int]]:
    """What readers see of each partition: up to the high watermark, and to the log end."""
    return {one.partition: (one.high_watermark, one.log_end_offset) for one in tidelog.open(str(root))["orders"]}


@pytest.mark.parametrize("noted", [None, {}, {1: 2}, {1: 0}, {0: 3, 1: 1, 2: 3}])
def test_a_recovery_hides_no_record_whose_high_watermark_was_not_noted(
    tmp_path: Path, noted: dict[int, int] | None
) -> None:
    with LogManager.open(str(tmp_path)) as manager:
        for number in range(3):
            log = manager.get_or_create(TopicPartition("orders", number))
            for value in (b"a", b"b", b"c"):
                log.append(NewRecord(b"k", value))
    (tmp_path / ".kafka_cleanshutdown").unlink()
    file = tmp_path / HIGH_WATERMARK_CHECKPOINT
    file.unlink()
    marks = {TopicPartition("orders", number): offset for number, offset in (noted or {}).items()}
    if noted is not None:
        OffsetCheckpoint(FS, str(file)).write(marks)
    before = marks_of(tmp_path)
    assert before == {number: ((noted or {}).get(number, 3), 3) for number in range(3)}
    assert CliRunner().invoke(cli, ["recover", str(tmp_path)]).exit_code == 0
    assert marks_of(tmp_path) == before
    assert OffsetCheckpoint(FS, str(file)).read() == marks


def recovered(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(cli, ["recover", "--json", *map(str, arguments)])
    assert not done.stderr, done.stderr
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_every_cut_of_a_recovery_is_reported_and_a_torn_end_is_no_loss(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    (root / ".kafka_cleanshutdown").unlink()
    log = next((root / "orders-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:40])
    code, [told] = recovered(root)
    assert (code, told["recovered"], told["rejected"]) == (0, True, False)
    [cut] = told["cuts"]
    assert (cut["partition"], cut["file"], cut["position"]) == ("orders-0", str(log), len(whole))
    assert (cut["bytes"], cut["first_offset"], cut["last_offset"], cut["log_end"]) == (40, 3, None, 3)
    assert cut["torn_end"]
    assert cut["reason"] == "an incomplete batch"


def test_recovery_leaves_a_directory_alone_where_it_would_cut_sound_batches_after_damage(tmp_path: Path) -> None:
    root = tmp_path / "u"
    shutil.copytree(case("kafka-4.3/6-recovery") / "unclean" / "before", root)
    before = snapshot(root)
    code, [told] = recovered(root)
    assert (code, told["recovered"], told["rejected"]) == (1, False, True)
    assert snapshot(root) == before
    cuts = {cut["partition"]: cut for cut in told["cuts"]}
    first = cuts["u-flip-first-0"]
    assert (first["bytes"], first["segments_after"], first["log_end"]) == (2353, 4, 0)
    assert (first["first_offset"], first["last_offset"], first["sound_batches"]) == (0, 40, True)
    assert "stored crc" in first["reason"]
    assert cuts["u-start-beyond-0"]["sound_batches"], "of a log that ends before its log start Kafka keeps nothing"
    assert cuts["u-hdr-back-0"]["set_aside"]
    assert not cuts["u-hdr-back-0"]["sound_batches"]
    assert cuts["u-torn-17-0"]["torn_end"]
    assert not cuts["u-torn-17-0"]["sound_batches"]
    text = CliRunner().invoke(cli, ["recover", str(root)]).stdout
    assert f"`tidelog fsck --repair {root}` keeps them" in text.splitlines()[0]
    assert "would be cut: u-flip-first-0: 2353 bytes" in text
    assert "u-torn-17-0" not in text


def test_recovery_cuts_no_batch_that_fits_after_some_that_go_back(tmp_path: Path) -> None:
    """Those that go back are set aside; a repair keeps the one that fits."""
    root = a_root(tmp_path / "r")
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    log = next((root / "orders-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole * 2 + (3).to_bytes(8, "big") + whole[8:])
    before = snapshot(root)
    code, [told] = recovered(root)
    assert (code, told["recovered"], told["rejected"]) == (1, False, True)
    assert snapshot(root) == before
    log.write_bytes(whole * 2)
    code, [told] = recovered(root)
    assert (code, told["recovered"], told["cuts"][0]["set_aside"]) == (1, True, True)


def test_recovery_like_kafka_cuts_sound_batches_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / "u"
    shutil.copytree(case("kafka-4.3/6-recovery") / "unclean" / "before", root)
    done = CliRunner().invoke(cli, ["recover", "--like-kafka", str(root)])
    assert done.exit_code == 1
    assert "\ncut: u-flip-first-0: 2353 bytes" in done.stdout
    assert "offsets 0 to 40; the log ends at 0" in done.stdout
    assert (root / "u-flip-first-0" / f"{0:020}.log").stat().st_size == 0


def test_after_a_repair_recovery_finds_nothing_to_cut(tmp_path: Path) -> None:
    root = tmp_path / "u"
    for name in ("u-flip-first-0", "u-zeros-old-0", "u-torn-17-0"):
        shutil.copytree(case("kafka-4.3/6-recovery") / "unclean" / "before" / name, root / name)
    assert recovered(root)[0] == 1
    CliRunner().invoke(cli, ["fsck", "--repair", str(root)])
    code, [told] = recovered(root)
    assert (code, told["recovered"], told["cuts"]) == (0, True, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_root_recovers_belongs_to_the_owner_of_the_logs(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    (root / ".kafka_cleanshutdown").unlink()
    (root / "orders-0" / f"{0:020}.index").unlink()
    for path in (root, *root.rglob("*")):
        os.chown(path, 4711, 4712)
    write_journal(FS, str(root), WriteJournal(WriteKind.LOAD))
    assert {path.stat().st_uid for path in (root / UNFINISHED_WRITE).rglob("*")} == {4711}
    recover([str(root)])
    assert (root / "orders-0" / f"{0:020}.index").exists()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in root.rglob("*")} == {(4711, 4712)}


def test_a_root_that_somebody_has_open_is_left_alone(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    write_journal(FS, str(root), HIDING)
    before = snapshot(root)
    lock = FS.lock(join(str(root), LOCK_FILE))
    with pytest.raises(LockedError, match="stop it first"):
        recover([str(root)])
    lock.release()
    (root / LOCK_FILE).unlink()
    assert snapshot(root) == before
    with pytest.raises(InvalidRequestError, match="is no directory"):
        recover([str(tmp_path / "nobody")])
    with pytest.raises(InvalidRequestError, match="holds other things than logs"):
        recover([str(tmp_path)])


def test_no_root_is_touched_if_the_journal_of_another_is_not_valid(tmp_path: Path) -> None:
    one, two = killed(tmp_path, commit_here), a_root(tmp_path / "two")
    (two / UNFINISHED_WRITE).mkdir()
    before = snapshot(one)
    with pytest.raises(CheckpointError, match="there is no file journal"):
        recover([str(one), str(two)])
    assert snapshot(one) == before


# -- readers -----------------------------------------------------------------------------------------------------------


def test_readers_say_which_records_a_journal_hides(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    write_journal(FS, str(root), HIDING)
    told = (
        f"{root}: a load into orders is under way or was interrupted; its records are not shown. If nothing is "
        f"writing, run `tidelog recover {root}`"
    )
    for command in (
        ["cat", str(root), "--topic", "orders"],
        ["cat", str(root), "--topic", "orders", "-o", "arrow", "--out", str(tmp_path / "x.arrow")],
        ["export", str(root), "--topic", "orders", "--to", str(tmp_path / "x.parquet")],
        ["ls", str(root)],
        ["explain", str(root), "--topic", "orders", "--partition", "0", "--offset", "0"],
        ["diff", str(root), "--fingerprint"],
    ):
        done = CliRunner().invoke(cli, command)
        assert (done.exit_code, done.stderr) == (0, f"tidelog: {told}\n"), command
    logs = tidelog.open(str(root))
    assert told in logs.notices
    scan = logs.scan("orders")
    assert (scan.count(), scan.notices) == (1, [told])
    assert [record.value for record in logs["orders", 0].read()] == [b"v0"]
    remove_journal(FS, str(root))
    assert tidelog.open(str(root)).scan("orders").count() == 3


@pytest.mark.parametrize("name", ["unknown version", *OLD_JOURNALS])
def test_a_journal_of_an_unknown_version_is_an_error_and_no_filter(tmp_path: Path, name: str) -> None:
    root = a_root(tmp_path / "r")
    if name in OLD_JOURNALS:
        (root / name).write_text('{"version": 0, "partitions": [["orders", 0, true, 0, 0, null, null, []]]}')
        told = "does not read journals of earlier builds"
    else:
        (root / UNFINISHED_WRITE).mkdir()
        (root / UNFINISHED_WRITE / JOURNAL_FILE).write_text('{"version": 99, "hides": "all"}\n')
        told = "it is of version 99, this release reads version 1"
    before = snapshot(root)
    for command in (
        ["cat", str(root), "--topic", "orders"],
        ["export", str(root), "--topic", "orders", "--to", str(tmp_path / "x.parquet")],
        ["ls", str(root)],
        ["recover", str(root)],
        ["compact", str(root), "--topic", "orders"],
        ["fsck", str(root), "--repair"],
    ):
        done = CliRunner().invoke(cli, command)
        assert (done.exit_code, done.stderr.count("\n")) == (3, 1), (command, done.stderr)
        assert told in done.stderr
    with pytest.raises(CheckpointError, match=told):
        tidelog.open(str(root)).scan("orders").count()
    with pytest.raises(CheckpointError, match=told):
        ensure_no_unfinished_write(FS, str(root))
    assert snapshot(root) == before


# -- hostile journals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", [LOAD, COMMIT])
def test_a_journal_that_does_not_fit_its_root_changes_nothing_outside(tmp_path: Path, journal: WriteJournal) -> None:
    home = a_home(tmp_path)
    write_journal(FS, str(home / "backup"), journal)
    outside = snapshot(home, without="backup")
    with contextlib.suppress(TidelogError):
        recover([str(home / "backup")])
    assert snapshot(home, without="backup") == outside


def test_hostile_journals_touch_nothing_outside_and_hide_nothing_in_silence() -> None:
    counts = run(16, 60)
    assert min(counts["rejected"], counts["told"]) > 5
    assert counts["shown"] + counts["told"] + counts["rejected"] == 60


def test_what_a_journal_says_of_a_log_that_is_shorter_is_rejected(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    note = PartitionNote(False, end=70, epoch=0, recovery_point=3, end_then=70)
    ids = {"orders": None}
    write_journal(FS, str(root), WriteJournal(WriteKind.COMMIT, topic_ids=ids, partitions={ORDERS: note}))
    with pytest.raises(StorageError, match="ended at 70 when the commit began"):
        recover([str(root)])
    assert read_journal(FS, str(root)) is not None


def test_a_partition_that_is_gone_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    root = a_root(tmp_path / "r")
    gone = PartitionNote(False, end=1, epoch=0)
    known = PartitionNote(False, True, 1, 0, 3)
    places = {ORDERS: known, TopicPartition("gone", 0): gone}
    write_journal(FS, str(root), WriteJournal(WriteKind.LOAD, b"{}", partitions=places))
    before = snapshot(root)
    with pytest.raises(StorageError, match=r"gone-0 is gone, and a load that was interrupted had appended to it"):
        recover([str(root)])
    assert snapshot(root) == before


def test_without_a_journal_every_record_is_shown(tmp_path: Path) -> None:
    assert look_at(a_home(tmp_path) / "backup", random.Random(1)) == "shown"


def test_spark_logs_an_unfinished_write_and_rejects_one_that_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = a_root(tmp_path / "r")
    write_journal(FS, str(root), HIDING)
    places = Places.of(OptionValues({"path": str(root)}))
    assert places.open().topics == ("orders",)
    assert caplog.text.count("a load into orders is under way or was interrupted") == 1
    (root / UNFINISHED_WRITE / JOURNAL_FILE).write_text('{"version": 99}\n')
    with pytest.raises(CheckpointError, match="it is of version 99"):
        places.open()


@pytest.mark.parametrize(
    "words",
    [
        ("compact", "--topic", "orders", "--no-preview", "--drop-without-key"),
        ("reindex",),
        ("fsck", "--repair"),
        ("recover",),
    ],
    ids=lambda words: words[0],
)
def test_no_command_that_writes_hides_records_whose_high_watermark_was_not_noted(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    root = a_root(tmp_path / "r")
    for index in (root / "orders-0").glob("*index"):
        index.write_bytes(b"")
    done = CliRunner().invoke(cli, [words[0], str(root), *words[1:]])
    assert done.exit_code in (0, 1), done.output
    assert marks_of(root) == {0: (3, 3)}


def test_a_load_and_a_commit_hide_no_records_of_partitions_that_they_do_not_touch(tmp_path: Path) -> None:
    for name, write in (("load", load_here), ("commit", commit_here)):
        root = a_root(tmp_path / name, topic="others")
        write(str(root), 0)
        [others] = tidelog.open(str(root))["others"]
        assert (others.high_watermark, others.log_end_offset) == (3, 3)
        assert all(one.high_watermark == one.log_end_offset for one in tidelog.open(str(root))["orders"])
