"""Rebuilt indexes and snapshots: what Kafka's own rebuild left, byte for byte."""

import os
import random
import shutil
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.fsck.roots import metadata_log
from tests.golden.corpus import case, facts
from tests.log.segments_language import NOW, batch, marker
from tidelog.errors import InvalidConfigError, InvalidRequestError, LockedError, StorageError
from tidelog.fsck.reindex import KINDS, FileState, Reindexed, ReindexSettings, reindex
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import CLEAN_SHUTDOWN, LOCK_FILE, LOG_START_CHECKPOINT, TopicPartition
from tidelog.log.write_journal import WriteJournal, WriteKind, write_journal
from tidelog.records import ControlType

RECOVERY = "kafka-4.3/6-recovery"

# What the broker left as it was when it started: of these files, a rebuild makes others.
LEFT_BY_THE_BROKER = {
    "u-index-garbage": {"00000000000000000000.index": "stale"},
    "u-index-odd": {"00000000000000000000.index": "stale"},
    "u-notxnindex-rp": {"00000000000000000000.txnindex": "missing", "00000000000000000018.txnindex": "missing"},
    "u-txn-partial": {"00000000000000000000.txnindex": "stale"},
    "u-txn-version": {"00000000000000000000.txnindex": "stale"},
    "c-index-garbage": {"00000000000000000028.index": "stale"},
    "c-index-short": {"00000000000000000020.index": "stale"},
}
TORN = {  # and where the sound batches end
    "u-flip-old-below-rp": 164, "u-dup-tail": 241, "u-hdr-back": 176, "c-flip-active": 116, "c-torn": 153,
}  # fmt: skip
OTHERS = {  # of which more than one file was left, or the log start was moved
    "c-empty-log", "c-nosnapshot", "c-notimeindex", "c-notxnindex", "c-start-beyond", "c-start-mid", "c-swap",
    "c-timeindex-empty", "c-torn-boundary",
}  # fmt: skip
VARIANTS = [
    (kind, name) for kind in ("unclean", "clean") for name in sorted(facts(RECOVERY, f"{kind}/facts.json")["variants"])
]


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def beside_the_logs(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(directory).items() if name.endswith(KINDS)}


def remove_files_beside_the_logs(directory: Path) -> None:
    for name in beside_the_logs(directory):
        (directory / name).unlink()


def recovered_root(home: Path, kind: str, name: str) -> tuple[Path, ReindexSettings, ManualClock]:
    """A root with one partition as the broker left it after a start and a clean stop."""
    about = facts(RECOVERY, f"{kind}/facts.json")
    after = case(RECOVERY) / kind / "after"
    root = home / "data"
    shutil.copytree(after / f"{name}-0", root / f"{name}-0")
    for path in after.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    configs = {**about["topic_configs"], **about["variants"][name].get("configs", {})}
    expiration = {"producer.id.expiration.ms": about["producer.id.expiration.ms"]}
    texts = {key: str(value) for key, value in {**configs, **expiration}.items()}
    return root, ReindexSettings.parse(texts), ManualClock(about["started"])


def reindexed(root: Path, settings: ReindexSettings | None = None, **options: Any) -> Reindexed:
    (done,) = reindex(str(root), settings=settings, **options)
    return done


@pytest.mark.parametrize(("kind", "name"), [v for v in VARIANTS if v[1] not in {*TORN, *OTHERS}])
def test_what_is_rebuilt_from_nothing_is_what_kafka_had_left(kind: str, name: str, tmp_path: Path) -> None:
    root, settings, clock = recovered_root(tmp_path, kind, name)
    before = files_in(root)
    trial = reindexed(root, settings, write=False, clock=clock)
    assert files_in(root) == before
    assert trial.error is None
    left = LEFT_BY_THE_BROKER.get(name, {})
    assert {file.name: str(file.state) for file in trial.changes} == left

    kept = {
        n: data
        for n, data in before.items()
        if n.rpartition("/")[2] not in left and (data or not n.endswith(".txnindex"))  # an empty one says nothing
    }
    remove_files_beside_the_logs(root)
    done = reindexed(root, settings, clock=clock)
    assert {file.state for file in done.files} <= {FileState.MISSING}
    after = files_in(root)
    assert {n: after[n] for n in kept} == kept
    assert after.keys() <= before.keys() | {f"{name}-0/{n}" for n in left}


def test_the_walk_through_gets_the_index_that_4_3_would_write(tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(case("seed-walkthrough") / "client-0.10.2.2" / "step6-after-clean-stop", root)
    (root / CLEAN_SHUTDOWN).touch()
    index = root / "log-format-1" / "00000000000000000000.index"
    assert struct.unpack(">ii", index.read_bytes()) == (80, 4384)  # 1.0.0 stored the first offset of the batch
    reindex(str(root), ["log-format"])
    assert struct.unpack(">ii", index.read_bytes()) == (92, 4384)


@pytest.mark.parametrize("name", TORN)
def test_a_torn_log_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    root, settings, clock = recovered_root(tmp_path, "unclean" if name.startswith("u") else "clean", name)
    before = files_in(root)
    done = reindexed(root, settings, clock=clock)
    assert done.error is not None
    assert f"the sound batches end at position {TORN[name]}" in done.error
    assert "tidelog fsck" in done.error
    assert files_in(root) == before


def test_snapshots_that_a_start_without_any_made_up_are_replaced_by_those_of_the_log(tmp_path: Path) -> None:
    root, settings, clock = recovered_root(tmp_path, "clean", "c-nosnapshot")
    done = reindexed(root, settings, clock=clock)
    assert [(file.name[16:20], str(file.state), file.size_before > 10) for file in done.changes] == [
        ("0011", "missing", False),
        ("0022", "missing", False),
        ("0032", "stale", False),  # as after a clean stop without any producer: 10 bytes, nobody in it
        ("0041", "stale", False),
        ("0044", "stale", False),
    ]
    assert all(file.size_after > 10 for file in done.changes)
    assert reindexed(root, settings, clock=clock, write=False).changes == ()


# -- roots of our own ----------------------------------------------------------------------------------------------


def a_root(home: Path, **topic: Any) -> Path:
    """A root with one partition of several segments: producers, an aborted transaction and one that stays open."""
    root = home / "data"
    root.mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    config = LogConfig(**{"segment_bytes": 1000, "index_interval_bytes": 100, "segment_index_bytes": 4096, **topic})
    with UnifiedLog.open(root / "orders-0", config, clock=ManualClock(NOW), rng=random.Random(1), lock=False) as log:
        for offset in range(0, 30, 3):
            at = {"producer_id": 7, "sequence": offset // 3, "timestamp_ms": NOW}
            log.append_as_follower(batch(offset, b"x" * 60, **at))
            at = {"producer_id": 8, "sequence": offset // 3, "timestamp_ms": NOW}
            log.append_as_follower(batch(offset + 1, b"y" * 60, is_transactional=True, **at))
            log.append_as_follower(marker(offset + 2, ControlType.ABORT if offset % 2 else ControlType.COMMIT, 8))
    (root / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":14}')
    return root


SETTINGS = ReindexSettings.parse({"index.interval.bytes": "100", "segment.index.bytes": "4096"})
CLOCK = ManualClock(NOW)


def test_what_a_live_log_has_written_is_what_is_rebuilt(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = files_in(root)
    assert {name.rpartition(".")[2] for name in beside_the_logs(root)} == {kind[1:] for kind in KINDS}
    remove_files_beside_the_logs(root)
    reindexed(root, SETTINGS, clock=CLOCK)
    assert files_in(root) == before


def test_every_file_that_differs_is_named_and_replaced(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = files_in(root)
    directory = root / "orders-0"
    indexes, snapshots = sorted(directory.glob("*.index")), sorted(directory.glob("*.snapshot"))
    indexes[0].unlink()
    indexes[1].write_bytes(bytes(8))
    snapshots[-1].write_bytes(b"torn")
    (directory / "00000000000000009999.timeindex").write_bytes(bytes(12))
    done = reindexed(root, SETTINGS, clock=CLOCK)
    assert {file.name: str(file.state) for file in done.changes} == {
        indexes[0].name: "missing",
        indexes[1].name: "stale",
        snapshots[-1].name: "stale",
        "00000000000000009999.timeindex": "extra",
    }
    assert files_in(root) == before
    assert reindexed(root, SETTINGS, clock=CLOCK).changes == ()


def test_below_the_log_start_there_is_no_snapshot(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    bases = sorted(int(path.stem) for path in root.glob("orders-0/*.log"))
    start = bases[2] + 1
    OffsetCheckpoint(LocalFileSystem(), f"{root}/{LOG_START_CHECKPOINT}").write({TopicPartition("orders", 0): start})
    reindexed(root, SETTINGS, clock=CLOCK)
    left = sorted(int(path.stem) for path in root.glob("orders-0/*.snapshot"))
    assert left == [*bases[3:], 30]


def test_only_the_kinds_that_are_named_are_replaced(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = files_in(root)
    remove_files_beside_the_logs(root)
    done = reindexed(root, SETTINGS, clock=CLOCK, kinds=(".index",))
    assert {file.name.rpartition(".")[2] for file in done.files} == {"index"}
    assert beside_the_logs(root) == {name: data for name, data in before.items() if name.endswith(".index")}


def test_an_index_that_has_too_little_room_lacks_entries(tmp_path: Path) -> None:
    root = a_root(tmp_path, segment_bytes=1 << 20)
    whole = reindexed(root, SETTINGS, clock=CLOCK, write=False)
    small = ReindexSettings.parse({"index.interval.bytes": "100", "segment.index.bytes": "40"})
    cut = reindexed(root, small, clock=CLOCK)
    sizes = [{file.name.rpartition(".")[2]: file.size_after for file in done.files} for done in (whole, cut)]
    assert sizes[0]["timeindex"] <= sizes[0]["index"] * 12 // 8
    assert (sizes[1]["index"], sizes[0]["index"] > 40) == (40, True)


def test_a_producer_that_only_a_snapshot_knew_is_named(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    directory = root / "orders-0"
    early = a_root(tmp_path / "other")
    with UnifiedLog.open(early / "orders-0", LogConfig(), clock=ManualClock(NOW), lock=False) as log:
        log.append_as_follower(batch(30, b"z", producer_id=99, sequence=0, timestamp_ms=NOW))
    newest = sorted((early / "orders-0").glob("*.snapshot"))[-1]
    shutil.copy(newest, directory / sorted(directory.glob("*.snapshot"))[-1].name)
    assert reindexed(root, SETTINGS, clock=CLOCK, write=False).forgotten_producers == (99,)
    later = ManualClock(NOW + SETTINGS.producer_id_expiration_ms)
    assert reindexed(root, SETTINGS, clock=later, write=False).forgotten_producers == ()


def test_new_files_have_the_mode_of_the_old_ones_or_of_the_log(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    directory = root / "orders-0"
    for path in directory.iterdir():
        path.chmod(0o640)
    stale, missing = sorted(directory.glob("*.timeindex"))[0], sorted(directory.glob("*.index"))[0]
    stale.write_bytes(bytes(8))
    stale.chmod(0o600)
    missing.unlink()
    reindexed(root, SETTINGS, clock=CLOCK)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (stale, missing)] == [0o600, 0o640]


def test_a_crash_between_two_renames_leaves_files_that_a_start_cleans_away(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    before = files_in(root)
    remove_files_beside_the_logs(root)

    class Full(LocalFileSystem):
        renames = 0

        def rename(self, source: str, target: str) -> None:
            self.renames += 1
            if self.renames == 3:
                raise StorageError(f"{target}: refused")
            super().rename(source, target)

    done = reindexed(root, SETTINGS, clock=CLOCK, fs=Full())
    assert done.error is not None
    assert done.error.endswith("refused")
    assert len(beside_the_logs(root)) == 2
    assert not [name for name in files_in(root) if name.endswith(".deleted")]
    reindexed(root, SETTINGS, clock=CLOCK)
    assert files_in(root) == before


def test_a_root_in_use_is_refused(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    lock = LocalFileSystem().lock(str(root / LOCK_FILE))
    with pytest.raises(LockedError):
        reindexed(root)
    lock.release()


def test_a_partition_that_somebody_has_open_is_left_alone(tmp_path: Path) -> None:
    root = without_a_broker(a_root(tmp_path))
    before = files_in(root)
    with UnifiedLog.open(root / "orders-0", LogConfig(), clock=CLOCK):
        error = reindexed(root, SETTINGS, clock=CLOCK).error
    assert error is not None
    assert f"has {root}/orders-0 open" in error
    assert {name for name in files_in(root) if name.endswith(".log")} == {n for n in before if n.endswith(".log")}


def test_a_load_that_was_interrupted_comes_first(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    write_journal(LocalFileSystem(), str(root), WriteJournal(WriteKind.LOAD))
    with pytest.raises(StorageError, match="a load was interrupted; run `tidelog recover"):
        reindexed(root)


def without_a_broker(root: Path) -> Path:
    """The partitions alone."""
    for path in root.iterdir():
        if path.is_file():
            path.unlink()
    return root


@pytest.mark.parametrize("kind", ["copy", "partition", "not closed"])
def test_any_directory_of_partitions_that_nobody_holds_will_do(tmp_path: Path, kind: str) -> None:
    root = a_root(tmp_path)
    if kind == "not closed":
        os.unlink(root / CLEAN_SHUTDOWN)
    else:
        without_a_broker(root)
    before = files_in(root)
    remove_files_beside_the_logs(root)
    done = reindexed(root / "orders-0" if kind == "partition" else root, SETTINGS, clock=CLOCK)
    assert done.error is None
    assert files_in(root) == before


def test_of_several_roots_one_has_to_be_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        a_root(tmp_path / name)
    with pytest.raises(InvalidRequestError, match=r"holds 2 log directories: name one of them \(.*one/data"):
        reindex(str(tmp_path))


# -- only what is missing or broken ------------------------------------------------------------------------------------


def test_sound_files_are_left_alone_where_only_missing_ones_are_wanted(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    directory = root / "orders-0"
    missing, broken, sound = sorted(directory.glob("*.index"))[:3]
    spare = sorted(directory.glob("*.timeindex"))[1]
    before = files_in(root)
    missing.unlink()
    broken.write_bytes(struct.pack(">ii", 1, 7))
    sound.write_bytes(sound.read_bytes()[:8])  # of a broker that was restarted, say
    spare.unlink()
    done = reindexed(root, ReindexSettings.parse({"segment.index.bytes": "4096"}), clock=CLOCK, missing=True)
    assert {file.name: str(file.state) for file in done.files if file.state is not FileState.EQUAL} == {
        missing.name: "missing",
        broken.name: "stale",
        sound.name: "sound",
        spare.name: "missing",
    }
    left = f"orders-0/{sound.name}"
    assert files_in(root) == {**before, left: before[left][:8]}
    assert done.config is not None
    assert done.config.is_found  # the interval of the sound indexes: what was lost is as it was


def test_an_index_without_its_segment_is_broken(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "orders-0" / "00000000000000009999.timeindex").write_bytes(bytes(12))
    done = reindexed(root, SETTINGS, clock=CLOCK, missing=True)
    assert [str(file.state) for file in done.changes] == ["extra"]


def test_configs_are_those_of_the_metadata_log_where_it_is_there(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    metadata_log(root, "orders", "index.interval.bytes", "100")
    before = beside_the_logs(root)
    for path in root.glob("orders-0/*.index"):
        path.unlink()
    (done,) = reindex(str(root), kinds=(".index",), clock=CLOCK)
    assert {name: data for name, data in before.items() if name.endswith(".index")} == {
        name: data for name, data in beside_the_logs(root).items() if name.endswith(".index")
    }
    assert str(done.config) == "index.interval.bytes=100, the topic's by the metadata log"


def test_a_compaction_that_was_not_completed_is_left_to_the_broker(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    log = sorted((root / "orders-0").glob("*.log"))[0]
    log.rename(f"{log}.swap")
    error = reindexed(root, SETTINGS, clock=CLOCK).error
    assert error is not None
    assert "start the broker" in error


def test_a_directory_without_a_log_has_nothing_to_rebuild_from(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "orders-1").mkdir()
    first, second = reindex(str(root), settings=SETTINGS, clock=CLOCK)
    assert first.error is None
    assert "holds no .log file" in str(second.error)


def test_a_topic_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no partition of topic order; the nearest is orders"):
        reindex(str(a_root(tmp_path)), ["order"])


def test_a_config_that_is_none_is_told_with_those_that_matter() -> None:
    with pytest.raises(InvalidConfigError, match="segment.index.bytes matter here"):
        ReindexSettings.parse({"index.interval": "1"})
