"""Whole roots of real Kafka, opened by a LogManager: the same directories, the same checkpoints, the same refusals."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.corpus import case, facts
from tests.golden.replays import Replay, append_as_leader, delete_records, files_of, replays
from tests.golden.test_recovery import OFFSETS_GO_BACK
from tests.log.manager.managers import after
from tidelog.errors import CorruptionError
from tidelog.log import LogManager, ManagerConfig, ManualClock, TopicPartition
from tidelog.log.checkpoints import CleanShutdownFile, read_offsets
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.manager.meta_properties import read_meta_properties
from tidelog.log.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEANER_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    is_stray_directory,
    parse_directory_name,
)
from tidelog.log.partition_metadata import parse_uuid

FS = LocalFileSystem()
RECOVERY = "kafka-4.3/6-recovery"
METADATA = "kafka-4.3/9-metadata"
LAYOUT = "kafka-4.3/10-layout"
CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


def copy_of(path: Path, target: Path) -> Path:
    shutil.copytree(path, target)
    return target


def directories_of(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir())


# -- recovery ----------------------------------------------------------------------------------------------------------


OTHER_ENDS = {f"{name}-0" for name in OFFSETS_GO_BACK}  # test_recovery.py says what becomes of these


def opened(root: Path, about: dict[str, Any]) -> LogManager:
    """A root as its broker started on it: what has no topic id is set aside."""
    configs = {
        name: {key: str(value) for key, value in {**about["topic_configs"], **variant.get("configs", {})}.items()}
        for name, variant in about["variants"].items()
    }
    return LogManager.open(
        root,
        topic_configs={name: {**given, "retention.ms": "-1"} for name, given in configs.items()},
        config=ManagerConfig.from_properties({"producer.id.expiration.ms": about["producer.id.expiration.ms"]}),
        clock=ManualClock(about["started"]),
        rng=random.Random(1),
        is_stray=lambda log: False,
    )


def elect_and_stop(manager: LogManager, about: dict[str, Any]) -> None:
    """What a single broker does to each of its logs: it leads them with a new epoch, expires them once, and stops."""
    for log in manager.logs.values():
        log.assign_epoch_start_offset(0, log.log_end_offset)
        log.assign_epoch_start_offset(2, log.log_end_offset)
        log.update_high_watermark(log.log_end_offset)
    manager.delete_old_segments()
    assert isinstance(manager.clock, ManualClock)
    manager.clock.advance(about["topic_configs"]["file.delete.delay.ms"])
    manager.tick()
    manager.close()


def kept(files: dict[str, bytes]) -> dict[str, bytes]:
    """Of a stray log, what does not depend on whether it was closed: Kafka leaves its indexes with all their room."""
    return {name: data for name, data in files.items() if not name.endswith((".index", ".timeindex"))}


def offsets_in(checkpoint: Path) -> dict[TopicPartition, int]:
    """What a checkpoint says of the logs that end where Kafka's do."""
    offsets = read_offsets(FS, str(checkpoint))
    return {partition: offset for partition, offset in offsets.items() if str(partition) not in OTHER_ENDS}


@pytest.mark.parametrize("kind", ["unclean", "clean"])
def test_a_root_full_of_damage_becomes_what_kafka_makes_of_it(kind: str, tmp_path: Path) -> None:
    about, after = facts(RECOVERY, f"{kind}/facts.json"), case(RECOVERY) / kind / "after"
    root = copy_of(case(RECOVERY) / kind / "before", tmp_path / "root")
    manager = opened(root, about)
    assert not (root / ".kafka_cleanshutdown").exists()
    assert len(manager.logs) == len(about["variants"]) - (kind == "unclean")
    if kind == "unclean":
        text = (after / "u-nometa-0" / PARTITION_METADATA).read_text().rpartition(" ")[2]
        new = manager.get_or_create(TopicPartition("u-nometa", 0), topic_id=parse_uuid(text))
        new.assign_epoch_start_offset(2, 0)
    for name, variant in about["variants"].items():
        log, found = manager.logs[TopicPartition(name, 0)], variant["after_start"]
        if name not in {"u-nometa", *OFFSETS_GO_BACK}:
            assert (log.log_end_offset, log.log_start_offset) == (found["log_end"], found["log_start"]), name
    elect_and_stop(manager, about)

    for ours, theirs in zip(directories_of(root), directories_of(after), strict=True):
        if is_stray_directory(theirs.name):
            assert is_stray_directory(ours.name)
            missing = {name: data for name, data in kept(files_of(theirs)).items() if files_of(ours).get(name) != data}
            assert missing == {}
        else:
            assert ours.name == theirs.name
            if ours.name not in OTHER_ENDS:
                assert files_of(ours) == files_of(theirs), ours.name
    for name in CHECKPOINTS:
        assert offsets_in(root / name) == offsets_in(after / name), name
    assert (root / CLEANER_CHECKPOINT).read_bytes() == (after / CLEANER_CHECKPOINT).read_bytes() == b""
    assert CleanShutdownFile(FS, str(root)).exists()


def test_a_root_that_kafka_refuses_is_refused_in_one_sentence(tmp_path: Path) -> None:
    about = facts(RECOVERY, "fatal/c-zeros-300/facts.json")
    after = case(RECOVERY) / "fatal" / "c-zeros-300" / "after"
    root = copy_of(case(RECOVERY) / "fatal" / "c-zeros-300" / "before", tmp_path / "root")
    configs = facts(RECOVERY, "clean/facts.json")
    with pytest.raises(CorruptionError) as refusal:
        opened(root, {**configs, "variants": about})
    sentence = str(refusal.value)
    assert sentence.startswith(f"{root}/c-zeros-300-0 cannot be loaded: ")
    assert f"{36:020}.log" in sentence
    assert "\n" not in sentence
    assert {path.name for path in root.iterdir()} == {path.name for path in after.iterdir()}  # no marker, no lock
    for name in CHECKPOINTS:
        assert read_offsets(FS, f"{root}/{name}") == read_offsets(FS, f"{after}/{name}")
    for name, data in files_of(after / "c-zeros-300-0").items():
        if name.endswith((".log", ".txnindex", ".snapshot")):
            assert (root / "c-zeros-300-0" / name).read_bytes() == data


# -- layout ------------------------------------------------------------------------------------------------------------


def listing(name: str) -> dict[str, int]:
    return {entry["name"]: entry["size"] for entry in facts(LAYOUT, name)}


def files_below(root: Path) -> dict[str, int]:
    found = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in found}


def in_partitions(files: dict[str, int], names: set[str]) -> dict[str, int]:
    return {name: size for name, size in files.items() if name.partition("/")[0] in names}


def of_the_root(files: dict[str, int]) -> set[str]:
    """The names of the root's own files. The bootstrap records are the quorum's."""
    return {name for name in files if "/" not in name} - {BOOTSTRAP_CHECKPOINT}


def known_partitions() -> dict[str, Replay]:
    """The partitions of the broker that can be written again, by the names of their directories."""
    cases = ("kafka-4.3/8-consumer-offsets", METADATA)
    found = [replay for replay in replays().values() if replay.partition.case in cases]
    return {replay.partition.path.name: replay for replay in found if replay.topic != CLUSTER_METADATA_TOPIC}


def empty_partitions(known: dict[str, Replay]) -> Iterator[tuple[str, Replay]]:
    """The partitions nothing was ever appended to, each with one of its topic."""
    stopped = listing("after-clean-stop.json")
    for name in sorted({path.partition("/")[0] for path in stopped if "/" in path} - set(known)):
        if stopped.get(f"{name}/{0:020}.log") == 0:
            topic = parse_directory_name(name).topic
            yield name, next(replay for replay in known.values() if replay.topic == topic)


def test_a_root_is_laid_out_as_kafkas_is_while_it_runs_and_after_it_stopped(tmp_path: Path) -> None:
    running, stopped = listing("running.json"), listing("after-clean-stop.json")
    known = known_partitions()
    empty = dict(empty_partitions(known))
    names = {*known, *empty}
    assert len(names) == 10
    properties = {replay.topic: replay.config.to_properties() for replay in known.values()}
    clock = ManualClock(facts(LAYOUT, "clock.json")["running_listing"])
    config = ManagerConfig(verification=False)
    manager = LogManager.open(
        tmp_path, topic_configs=properties, config=config, clock=clock, rng=random.Random(1), broker_epoch=19
    )
    meta = read_meta_properties(FS, str(case(METADATA) / "image"))
    assert meta is not None
    manager.roots[0].write_meta(meta, clock.now_ms())

    left = {}
    for name, replay in {**known, **empty}.items():
        log = manager.get_or_create(parse_directory_name(name), topic_id=parse_uuid(replay.topic_id))
        log.assign_epoch_start_offset(replay.epoch, 0)
        left[name] = list(replay.batches()) if name in known else []
        while left[name] and log.size < running[f"{name}/{0:020}.log"]:
            append_as_leader(replay, log, left[name].pop(0))
        if name in known:
            delete_records(replay, log)
    after(manager, ms=60_000)

    assert in_partitions(files_below(tmp_path), names) == in_partitions(running, names)
    assert of_the_root(files_below(tmp_path)) == of_the_root(running)
    for name in (LOCK_FILE, META_PROPERTIES, LOG_START_CHECKPOINT):
        assert (tmp_path / name).stat().st_size == running[name]

    for name, batches in left.items():
        for batch in batches:
            append_as_leader(known[name], manager.logs[parse_directory_name(name)], batch)
    manager.close()

    assert in_partitions(files_below(tmp_path), names) == in_partitions(stopped, names)
    assert of_the_root(files_below(tmp_path)) == of_the_root(stopped)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == (
        case(METADATA) / "image" / ".kafka_cleanshutdown"
    ).read_bytes()
    for name in CHECKPOINTS:
        theirs = read_offsets(FS, f"{case(METADATA)}/image/{name}")
        ours = read_offsets(FS, f"{tmp_path}/{name}")
        assert ours == {partition: offset for partition, offset in theirs.items() if str(partition) in names}, name
    for name in known:
        assert files_of(tmp_path / name) == files_of(known[name].partition.path), name


def test_a_root_that_kafka_left_is_opened_and_left_as_it_was(tmp_path: Path) -> None:
    root = copy_of(case(METADATA) / "image", tmp_path / "root")
    # orders-1 is not among them: it knows no producers, and a clean start without a snapshot writes an empty one.
    before = {name: files_of(root / name) for name in ("orders-0", "a-1-2-1", "__cluster_metadata-0")}
    about = known_partitions()
    properties = {replay.topic: replay.config.to_properties() for replay in about.values()}
    clock = ManualClock(facts(LAYOUT, "clock.json")["stopped"])
    config = ManagerConfig.from_properties({"log.cleaner.enable": "false"})
    with LogManager.open(root, topic_configs=properties, config=config, clock=clock, broker_epoch=20) as manager:
        assert manager.stopped_epoch == 19
        assert str(manager.roots[0].directory_id) == "3a29ab75-d8d2-4f0d-b45c-0879567174fc"
        found = {str(tp): (log.log_start_offset, log.high_watermark) for tp, log in manager.logs.items()}
        assert found == {"a-1-2-1": (0, 1), "orders-0": (5, 12), "orders-1": (12, 12), "views-0": (0, 9)}
    assert {name: files_of(root / name) for name in before} == before
    assert read_offsets(FS, f"{root}/{CLEANER_CHECKPOINT}") == {
        TopicPartition("views", 0): 6,
        TopicPartition("views", 1): 1,
    }
