"""A root that is worked on without a broker: whose its files are afterwards, and when its marker comes back."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.golden.corpus import case
from tidelog.errors import CorruptRecordError, StorageError
from tidelog.log.config import LogConfig
from tidelog.log.names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT, TopicPartition
from tidelog.log.offline_compaction import CompactionSettings, compact_partition
from tidelog.log.offline_root import OfflineRoot
from tidelog.log.unified_log import UnifiedLog

BASIC, GZIP = TopicPartition("k-basic", 0), TopicPartition("k-gzip", 0)
KAFKA = 65534
SETTINGS = CompactionSettings.parse({})

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root as a broker left it, with two topics that are not compacted yet."""
    golden = case("kafka-4.3/5-compaction") / "1-before"
    for name in (BASIC, GZIP):
        shutil.copytree(golden / str(name), tmp_path / str(name))
    for checkpoint in golden.glob("*-checkpoint"):
        shutil.copy(checkpoint, tmp_path / checkpoint.name)
    (tmp_path / CLEAN_SHUTDOWN).write_text("{}")
    return tmp_path


def owners_in(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path.relative_to(root)): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) for name, now in found.items()}


def give_all(root: Path, owner: int, mode: int) -> None:
    for path in (root, *root.rglob("*")):
        if path.is_file():
            path.chmod(mode)
        os.chown(path, owner, owner)


@as_root
def test_what_root_writes_belongs_to_the_owner_of_the_old_files(root: Path) -> None:
    give_all(root, KAFKA, 0o640)
    before = os.umask(0o077)
    try:
        with OfflineRoot(str(root)) as offline:
            done = compact_partition(offline, BASIC, SETTINGS)
    finally:
        os.umask(before)
    assert done.error is None
    owners = owners_in(root)
    assert {CLEANER_CHECKPOINT, CLEAN_SHUTDOWN, "k-basic-0/00000000000000000000.log"} <= owners.keys()
    assert set(owners.values()) == {(KAFKA, KAFKA, 0o640)}


@as_root
def test_each_kind_of_file_keeps_its_own_mode(root: Path) -> None:
    give_all(root, KAFKA, 0o640)
    for path in root.glob("k-basic-0/*index"):
        path.chmod(0o600)
    with OfflineRoot(str(root)) as offline:
        compact_partition(offline, BASIC, SETTINGS)
    modes = {name: mode for name, (_, _, mode) in owners_in(root).items() if name.startswith("k-basic-0/")}
    assert {mode for name, mode in modes.items() if name.endswith("index")} == {0o600}
    assert {mode for name, mode in modes.items() if not name.endswith("index")} == {0o640}


@as_root
def test_a_damaged_log_is_given_back_as_well(root: Path) -> None:
    give_all(root, KAFKA, 0o640)
    with (
        pytest.raises(CorruptRecordError),
        OfflineRoot(str(root)) as offline,
        offline.open_log(BASIC, LogConfig()),
    ):
        raise CorruptRecordError("found on the way")
    assert set(owners_in(root).values()) == {(KAFKA, KAFKA, 0o640)}
    assert (root / CLEAN_SHUTDOWN).exists()


def test_modes_survive_a_strict_umask_of_the_owner(root: Path) -> None:
    give_all(root, os.geteuid(), 0o664)
    before = os.umask(0o077)
    try:
        with OfflineRoot(str(root)) as offline:
            compact_partition(offline, BASIC, SETTINGS)
    finally:
        os.umask(before)
    assert {mode for _, _, mode in owners_in(root).values()} == {0o664}


def test_a_log_that_cannot_be_opened_and_is_as_it_was_does_not_cost_the_marker(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> UnifiedLog:
        raise StorageError("Permission denied")

    monkeypatch.setattr(UnifiedLog, "open", refuse)
    with OfflineRoot(str(root)) as offline:
        assert compact_partition(offline, BASIC, SETTINGS).error == "Permission denied"
        assert not (root / CLEAN_SHUTDOWN).exists()
    assert (root / CLEAN_SHUTDOWN).exists()
    assert offline.unclean_because is None


def test_a_log_that_was_changed_and_then_not_opened_costs_the_marker(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tear(directory: str, *arguments: object, **options: object) -> UnifiedLog:
        (Path(directory) / "00000000000000000000.index").unlink()
        raise StorageError("Input/output error")

    monkeypatch.setattr(UnifiedLog, "open", tear)
    with OfflineRoot(str(root)) as offline:
        compact_partition(offline, BASIC, SETTINGS)
    assert not (root / CLEAN_SHUTDOWN).exists()
    assert offline.unclean_because == "k-basic-0 could not be closed in good order"


def test_whoever_is_killed_in_the_middle_leaves_the_marker_away(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(log: UnifiedLog) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(UnifiedLog, "close", die)
    with pytest.raises(KeyboardInterrupt), OfflineRoot(str(root)) as offline, offline.open_log(BASIC, LogConfig()):
        pass
    assert not (root / CLEAN_SHUTDOWN).exists()


def test_it_knows_its_topics(root: Path) -> None:
    (root / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    (root / "__cluster_metadata-0").mkdir()
    with OfflineRoot(str(root), dry_run=True) as offline:
        assert offline.topics == ["k-basic", "k-gzip"]
        assert offline.partitions("k-gzip") == [GZIP]
