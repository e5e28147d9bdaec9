"""Crash images and cleanly stopped directories, damaged, opened by real Kafka and by us: the same files afterwards.

A case is opened with what the checkpoints said, then the steps of a single broker's start follow: it re-assigns the
old epoch, is elected with epoch 2, runs retention once, waits for the delayed deletions, and stops cleanly.
"""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.golden.corpus import case, facts
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.set_aside import SET_ASIDE
from tidelog.records import read_batches

CASE = "kafka-4.3/6-recovery"
OF_LOG_MANAGER = {"u-nometa"}  # a directory without topic id is set aside by the broker, not by the log
OFFSETS_GO_BACK = {"u-dup-tail", "u-hdr-back"}  # Kafka keeps batches that repeat offsets, and the log ends with them
CASES = [
    (kind, name)
    for kind in ("unclean", "clean")
    for name in facts(CASE, f"{kind}/facts.json")["variants"]
    if name not in OF_LOG_MANAGER | OFFSETS_GO_BACK
]


def start_and_stop(directory: Path, about: dict[str, Any], variant: dict[str, Any]) -> UnifiedLog:
    """What the broker did to one partition."""
    clock = ManualClock(about["started"])
    config = LogConfig.from_properties({**about["topic_configs"], **variant.get("configs", {}), "retention.ms": -1})
    log = UnifiedLog.open(
        directory,
        config,
        recovery_point=variant["recovery_point"] or 0,
        log_start_offset=variant["log_start_checkpoint"] or 0,
        clean_shutdown=variant["clean_marker"],
        producer_id_expiration_ms=about["producer.id.expiration.ms"],
        clock=clock,
        rng=random.Random(1),
    )
    log.assign_epoch_start_offset(0, log.log_end_offset)
    log.assign_epoch_start_offset(2, log.log_end_offset)
    log.update_high_watermark(log.log_end_offset)
    log.delete_old_segments()
    clock.advance(config.file_delete_delay_ms)
    log.tick()
    log.close()
    return log


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(("kind", "name"), CASES)
@behaviour("LDR-005", "LDR-014", "LDR-017", "LDR-022", "LDR-023", "LDR-034", "LDR-036")
def test_a_damaged_directory_becomes_what_kafka_makes_of_it(kind: str, name: str, tmp_path: Path) -> None:
    about = facts(CASE, f"{kind}/facts.json")
    variant = about["variants"][name]
    directory = tmp_path / f"{name}-0"
    shutil.copytree(case(CASE) / kind / "before" / f"{name}-0", directory)

    log = start_and_stop(directory, about, variant)

    after = variant["after_start"]
    assert (log.log_end_offset, log.log_start_offset) == (after["log_end"], after["log_start"])
    assert log.last_stable_offset == after["lso"]
    assert files_of(directory) == files_of(case(CASE) / kind / "after" / f"{name}-0")


@pytest.mark.parametrize("name", sorted(OFFSETS_GO_BACK))
def test_where_kafka_keeps_offsets_twice_the_log_ends_before_the_second(name: str, tmp_path: Path) -> None:
    about = facts(CASE, "unclean/facts.json")
    variant = about["variants"][name]
    directory = tmp_path / f"{name}-0"
    shutil.copytree(case(CASE) / "unclean" / "before" / f"{name}-0", directory)
    logs_of_kafka = sorted((case(CASE) / "unclean" / "after" / f"{name}-0").glob("*.log"))

    log = start_and_stop(directory, about, variant)

    [aside] = directory.glob(f"{SET_ASIDE}*")
    kept = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    assert kept + aside.read_bytes() == b"".join(path.read_bytes() for path in logs_of_kafka)
    offsets = [batch.base_offset for batch in read_batches(kept)]
    assert offsets == sorted(set(offsets))
    assert log.log_end_offset >= variant["after_start"]["log_end"]
    assert name in log.notices[0]
