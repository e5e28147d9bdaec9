"""Ways to lose data with a repair, tried: none must do."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fsck.roots import a_root as small_root
from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_check import batch_starts
from tests.fsck.world import CONFIG, NOW, ORDERS, ROOT, directory_of, world
from tidelog.errors import InvalidRequestError, LockedError
from tidelog.fsck import RepairResult, Severity, check
from tidelog.fsck.mending import repair
from tidelog.fsck.quarantine import MANIFEST
from tidelog.log import Isolation, ManualClock, UnifiedLog
from tidelog.log.files import join, read_whole
from tidelog.log.locks import lock_path
from tidelog.records import Codec, NewRecord, build_batch, read_batches
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def repaired(*paths: Path | str, quarantine: Path | None = None, dry_run: bool = False) -> RepairResult:
    return repair(
        [str(path) for path in paths], config=CONFIG, clock=ManualClock(NOW), dry_run=dry_run,
        quarantine=None if quarantine is None else str(quarantine), jobs=1,
    )  # fmt: skip


def lines_of(place: str | Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (Path(place) / MANIFEST).read_bytes().splitlines()]


def offsets_in(log: Path) -> list[int]:
    return [record.offset for batch in read_batches(log.read_bytes()) for record in batch]


# -- the quarantine ----------------------------------------------------------------------------------------------------


def test_two_repairs_of_the_same_second_have_directories_of_their_own(root: Path) -> None:
    flip(segment(root), 70)
    first = repaired(root)
    flip(segment(root, 2), 70)
    second = repaired(root)
    assert second.quarantine == [f"{first.quarantine[0]}-2"]
    assert len(lines_of(first.quarantine[0])) == first.pieces
    assert check(str(root), deep=True).is_clean


def test_two_roots_share_a_quarantine_and_not_its_files(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    damaged = []
    for number, path in enumerate(roots):
        path.mkdir()
        path = a_root(path)
        flip(segment(path), 70, bit=number)
        damaged.append(segment(path).read_bytes())
    result = repaired(tmp_path, quarantine=tmp_path / "aside")
    assert result.is_clean
    assert len(result.quarantine) == 2
    for place, data in zip(result.quarantine, damaged, strict=True):
        (piece,) = [one for one in lines_of(place) if one["code"] == "LOG-CRC" and ".log@" in str(one["piece"])]
        kept = (Path(place) / str(piece["piece"])).read_bytes()
        assert kept == data[: len(kept)]
    for path in roots:
        assert check(str(path), deep=True, quarantine=str(tmp_path / "aside")).is_clean


def test_what_is_kept_twice_is_there_twice(root: Path) -> None:
    """The offset is mended in one round, and the index that lied about it is rebuilt in the next."""
    log = segment(root)
    flip(log, batch_starts(log)[1] + 6, bit=3)
    flip(segment(root, 0, ".index"), 7)
    flip(segment(root, 0, ".timeindex"), 7)
    before = contents(root)
    result = repaired(root)
    (place,) = result.quarantine
    for line in lines_of(place):
        if line["piece"] is None:
            continue  # a notice
        data = (Path(place) / str(line["piece"])).read_bytes()
        name = str(Path(str(line["file"])).relative_to(root))
        assert data == before[name][int(str(line["position"])) :][: len(data)]


def test_a_quarantine_inside_the_root_is_refused(root: Path) -> None:
    flip(segment(root), 70)
    before = contents(root)
    for inside in (root, root / "aside", root / "orders-0" / "x"):
        with pytest.raises(InvalidRequestError, match="name a quarantine outside"):
            repaired(root, quarantine=inside)
    assert contents(root) == before


def test_a_root_is_the_same_however_it_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(segment(root, 1), 70)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(root)
    result = repaired(link)
    assert Path(result.quarantine[0]).parent == tmp_path / "kafka.tidelog"
    monkeypatch.chdir(root)
    for name in (str(root), str(link), ".", "../kafka", "orders-0", str(root / "orders-0")):
        assert check(name, deep=True).is_clean, name
    monkeypatch.chdir(root / "orders-0")
    assert check(".", deep=True).is_clean


# -- what is given, and who else is there ------------------------------------------------------------------------------


def test_a_root_and_its_partitions_are_looked_at_once(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    for number in (0, 1):
        flip(segment(root, partition=f"orders-{number}"), 70)
    one, two = root / "orders-0", root / "orders-1"
    assert check([str(root), str(one), str(tmp_path / "link"), f"{root}/"]).counts["partitions"] == 4
    assert check([str(one), str(two), str(one)]).counts["partitions"] == 2
    assert repaired(one, two, root, tmp_path / "link").is_clean


def test_a_partition_by_itself_is_mended_under_the_lock_of_its_root(root: Path) -> None:
    flip(segment(root), 70)
    lock = lock_path(join(str(root), ".lock"))
    try:
        with pytest.raises(LockedError, match="stop it first"):
            repaired(root / "orders-0")
    finally:
        lock.release()
    (root / ".lock").unlink()
    others = {name: data for name, data in contents(root).items() if not name.startswith("orders-0")}
    assert repaired(root / "orders-0").is_clean
    assert {name: data for name, data in contents(root).items() if not name.startswith("orders-0")} == others


def test_two_repairs_of_a_copy_without_a_broker_s_files_keep_each_other_out(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(root / "orders-0", copy / "orders-0")
    flip(segment(copy), 70)
    lock = lock_path(str(copy))
    try:
        with pytest.raises(LockedError, match="stop it first"):
            repaired(copy / "orders-0")
    finally:
        lock.release()
    assert repaired(copy / "orders-0").is_clean


def test_a_file_that_cannot_be_read_leaves_its_partition_alone() -> None:
    disk = world().copy()
    broken = join(directory_of(ORDERS), f"{29:020}.log")
    for number in (14, 44):
        file = disk.open_write(join(directory_of(ORDERS), f"{number:020}.log"))
        file.write_at(70, b"damage")
    before = {name: read_whole(disk, join(directory_of(ORDERS), name)) for name in disk.list(directory_of(ORDERS))}
    disk.fail(operation="read", path=broken, error="Input/output error")
    result = repair(ROOT, config=CONFIG, clock=ManualClock(NOW), fs=disk, jobs=1)
    disk.heal()
    assert {finding.code for finding in result.left} >= {"FILE-READ"}
    after = {name: read_whole(disk, join(directory_of(ORDERS), name)) for name in disk.list(directory_of(ORDERS))}
    assert after == before


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("number", [0, 14, 44, 74])
def test_a_log_that_cannot_be_read_accuses_no_other_file(number: int, operation: str) -> None:
    disk = world().copy()
    broken = join(directory_of(ORDERS), f"{number:020}.log")
    disk.fail(operation=operation, path=broken, error="Permission denied")
    report = check(ROOT, deep=True, fs=disk, jobs=1)
    bad = [(one.code, one.file) for one in report.findings if one.severity is not Severity.INFO]
    assert bad == [("FILE-READ", broken)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_beside_the_log_that_cannot_be_read_is_accused_of_nothing_else(suffix: str) -> None:
    disk = world().copy()
    broken = join(directory_of(ORDERS), f"{14:020}{suffix}")
    disk.fail(operation="open", path=broken, error="Permission denied")
    report = check(ROOT, deep=True, fs=disk, jobs=1)
    assert [(one.code, one.file) for one in report.findings if one.severity is not Severity.INFO] == [
        ("FILE-READ", broken)
    ]


def test_what_does_not_depend_on_a_log_that_cannot_be_read_is_judged_all_the_same() -> None:
    disk = world().copy()
    for name, position in ((f"{0:020}.timeindex", 7), (f"{14:020}.txnindex", 9), (f"{74:020}.index", 7)):
        path = join(directory_of(ORDERS), name)
        data = bytearray(read_whole(disk, path))
        data[position] ^= 1
        disk.open_write(path).write_at(0, data)
    disk.fail(operation="open", path=join(directory_of(ORDERS), f"{44:020}.log"), error="Permission denied")
    codes = check(ROOT, deep=True, fs=disk, jobs=1).codes()
    assert codes == {"FILE-READ", "TIX-ENTRY", "TXN-ENTRY", "IDX-ENTRY"}


def test_a_partition_that_refuses_keeps_no_other_from_its_later_rounds() -> None:
    disk = world().copy()
    for partition, position in (("orders-0", 70), ("orders-1", 262 + 7)):  # corrupt; an offset, then its indexes
        path = join(ROOT, f"{partition}/{0:020}.log")
        data = bytearray(read_whole(disk, path))
        data[position] ^= 32
        disk.open_write(path).write_at(0, data)
    disk.fail(path="*/orders-0/*.cleaned")
    result = repair(ROOT, config=CONFIG, clock=ManualClock(NOW), fs=disk, jobs=1)
    assert [failure.partition(":")[0] for failure in result.failures] == [join(ROOT, "orders-0")]
    disk.heal()
    assert check(join(ROOT, "orders-1"), deep=True, fs=disk, jobs=1).is_clean
    assert not [name for name in disk.list(join(ROOT, "orders-0")) if name.endswith(".cleaned")]
    assert disk.stat(join(ROOT, ".kafka_cleanshutdown")) is not None


def test_links_and_pipes_are_left_to_people(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (root / "backup").symlink_to(tmp_path / "mine")
    os.mkfifo(root / "orders-0" / "pipe")
    result = repaired(root)
    assert {Path(finding.file).name for finding in result.left} == {"backup", "pipe"}
    assert result.quarantine == []
    assert (tmp_path / "mine" / "file").exists()


# -- damage that hides more than itself --------------------------------------------------------------------------------


def test_a_length_that_covers_good_batches_takes_none_of_them_along(root: Path) -> None:
    log = segment(root)
    starts, before, data = batch_starts(log), offsets_in(log), bytearray(log.read_bytes())
    data[starts[1] + 8 : starts[1] + 12] = (starts[5] - starts[1] - 12).to_bytes(4, "big")
    log.write_bytes(data)
    assert repaired(root).is_clean
    assert offsets_in(log) == before


def test_a_batch_in_the_value_of_a_broken_one_is_not_taken_for_a_batch_of_the_log(tmp_path: Path) -> None:
    inner = build_batch([NewRecord(b"not", b"of this log", 5)], base_offset=1)
    with UnifiedLog.open(tmp_path / "orders-0", clock=ManualClock(0)) as log:
        for value in (b"a", bytes(inner), b"c"):
            log.append([NewRecord(b"k", value, 5)])
    path = segment(tmp_path)
    flip(path, batch_starts(path)[1] + 62)
    assert repaired(tmp_path).is_clean
    assert offsets_in(path) == [0, 2]


def test_a_batch_that_decompresses_to_more_than_is_read_at_once_is_kept(tmp_path: Path) -> None:
    """Its checksum holds, and Kafka reads it: the limit is our own, and no damage."""
    small = [bytes(build_batch([NewRecord(b"k", b"v", 9)], base_offset=offset)) for offset in (0, 2)]
    zeros = bytes(MAX_DECOMPRESSED_BYTES)
    large = bytes(build_batch([NewRecord(b"large", zeros, 9)], codec=Codec.ZSTD, base_offset=1))
    data = b"".join([small[0], large, small[1]])
    root = small_root(tmp_path / "root", {"orders-0": [data]})
    repaired(root)
    assert (root / "orders-0" / f"{0:020}.log").read_bytes() == data
    found = check(str(root), deep=True)
    assert [(one.code, one.severity, one.position) for one in found.findings if one.code.startswith("LOG")] == [
        ("LOG-LARGE", Severity.INFO, len(small[0]))
    ]
    assert found.counts["batches"] == 3


def test_megabytes_of_anything_between_two_batches_go_and_nothing_else(root: Path) -> None:
    log = segment(root, 1)
    before, at = log.read_bytes(), batch_starts(log)[3]
    garbage = os.urandom(5 << 20)
    log.write_bytes(before[:at] + garbage + before[at:])
    result = repaired(root)
    assert result.is_clean
    assert log.read_bytes() == before
    (entry,) = [one for one in lines_of(result.quarantine[0]) if one["file"] == str(log)]
    assert entry["code"] == "LOG-LENGTH"
    assert (Path(result.quarantine[0]) / str(entry["piece"])).read_bytes() == garbage


def test_the_first_and_the_last_batch_of_every_segment_go_and_all_between_stay(root: Path) -> None:
    before = {}
    for number in range(6):
        log = segment(root, number)
        starts = batch_starts(log)
        before[log] = [bytes(batch.buffer) for batch in read_batches(log.read_bytes())][1:-1]
        flip(log, starts[0] + 40)
        flip(log, starts[-1] + 40)
    assert repaired(root).is_clean
    for log, batches in before.items():
        assert [bytes(batch.buffer) for batch in read_batches(log.read_bytes())] == batches


def test_more_gaps_than_are_told_one_by_one_are_all_noted(tmp_path: Path) -> None:
    with UnifiedLog.open(tmp_path / "orders-0", clock=ManualClock(0)) as log:
        for number in range(60):
            log.append([NewRecord(b"k", b"%d" % number, 5)])
    path = segment(tmp_path)
    path.write_bytes(b"".join(bytes(one.buffer) for one in read_batches(path.read_bytes()) if one.base_offset % 2))
    result = repaired(tmp_path)
    assert result.is_clean
    assert sum("missing_offsets" in line for line in lines_of(result.quarantine[0])) == 30
    assert check(str(tmp_path), deep=True).is_clean


# -- transactions ------------------------------------------------------------------------------------------------------


def test_the_loss_of_a_marker_is_told_before_and_after(root: Path) -> None:
    log = segment(root, 1)
    batches = list(read_batches(log.read_bytes()))
    number = next(number for number, batch in enumerate(batches) if batch.is_control)
    flip(log, batch_starts(log)[number] + 40)
    (told,) = [one for one in check(str(root), deep=True).findings if one.code == "TXN-MARKER"]
    assert "the marker at 24 that aborts the transaction of 2 is lost" in told.message
    result = repaired(root)
    assert result.is_clean
    assert "TXN-MARKER" in {one.code for one in result.left}


def test_a_transaction_that_stays_open_for_want_of_its_marker_is_told_each_time(root: Path) -> None:
    log = segment(root, 5)
    batches = list(read_batches(log.read_bytes()))
    number = max(number for number, batch in enumerate(batches) if batch.is_control and batch.producer_id == 2)
    flip(log, batch_starts(log)[number] + 40)
    repaired(root)
    told = [one for one in check(str(root), deep=True).findings if one.code == "TXN-MARKER"]
    assert [one.message.partition(":")[0] for one in told][:1] == ["the transaction of producer 2 is open"]
    opened = UnifiedLog.open(str(root / "orders-0"), CONFIG, clock=ManualClock(NOW))
    opened.update_high_watermark(opened.log_end_offset)
    assert opened.last_stable_offset == told[0].offsets[0] if told[0].offsets else False
    assert opened.read(opened.last_stable_offset, 1000, Isolation.COMMITTED).read() == b""
    opened.release()


# -- leftovers ---------------------------------------------------------------------------------------------------------


def test_empty_output_of_a_compaction_does_not_replace_a_log(root: Path) -> None:
    log = segment(root, 1)
    before = log.read_bytes()
    log.with_name(f"{log.name}.swap").write_bytes(b"")
    log.with_name("anything.log.swap").write_bytes(b"x")
    assert repaired(root).is_clean
    assert log.read_bytes() == before


def test_damaged_output_of_a_compaction_does_not_replace_a_log(root: Path) -> None:
    log = segment(root, 1)
    before = log.read_bytes()
    log.with_name(f"{log.name}.swap").write_bytes(before[:100] + b"?" + before[101:])
    assert repaired(root).is_clean
    assert log.read_bytes() == before


def test_a_file_on_its_way_out_is_kept_before_another_takes_its_name(root: Path) -> None:
    log = segment(root, 1)
    old = log.with_name(f"{log.name}.deleted")
    old.write_bytes(b"what was deleted")
    flip(log, 70)
    result = repaired(root)
    assert result.is_clean
    assert (Path(result.quarantine[0]) / "orders-0" / old.name).read_bytes() == b"what was deleted"


# -- files of another place --------------------------------------------------------------------------------------------


def test_a_log_of_another_partition_whose_offsets_fit_is_found_and_told(root: Path) -> None:
    foreign, log = segment(root), segment(root, partition="orders-1")
    log.write_bytes(foreign.read_bytes())
    evidence = {suffix: segment(root, 0, suffix, "orders-1").read_bytes() for suffix in (".index", ".timeindex")}
    (told,) = [one for one in check(str(root), deep=True).findings if one.code == "SEG-DOUBT"]
    assert told.message == (
        "its batches are whole, but the offset index, the producer snapshot behind it and the time index describe "
        "other batches: it may belong to another partition, or be an older copy"
    )
    assert told.remedy.startswith("compare it with a replica of the partition (tidelog diff)")
    result = repaired(root)
    assert result.is_clean
    assert [one.file for one in result.left if one.code == "SEG-DOUBT"] == [str(log)]
    for suffix, data in evidence.items():
        kept = Path(result.quarantine[0]) / "orders-1" / f"{0:020}{suffix}"
        assert kept.read_bytes() == data


def test_a_copy_of_another_segment_with_its_indexes_is_known_by_its_twin(root: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(segment(root, 0, suffix), segment(root, 0, suffix, "orders-1"))
    (told,) = [one for one in check(str(root), deep=True).findings if one.code == "SEG-DOUBT"]
    assert f"the same batches lie in {segment(root)}" in told.message


def test_a_topic_made_of_the_copy_of_another_is_clean(root: Path) -> None:
    shutil.copytree(root / "orders-0", root / "again-0")
    (root / "again-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert check(str(root), deep=True).codes() <= {"CHK-RANGE"}


def test_a_twin_whose_indexes_are_all_missing_is_not_in_doubt(root: Path) -> None:
    """Kafka rebuilds them; a transaction index that went with the others contradicts nothing."""
    shutil.copytree(root / "orders-0", root / "again-0")
    (root / "again-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    for suffix in (".index", ".timeindex", ".txnindex"):
        segment(root, 1, ".log", "again-0").with_suffix(suffix).unlink()
    codes = check(str(root), deep=True).codes()
    assert codes - {"CHK-RANGE"} == {"IDX-MISSING", "TIX-MISSING", "TXN-MISSING"}


# -- the metadata log, and the dry run ---------------------------------------------------------------------------------


def test_a_damaged_metadata_log_is_left_as_it_is(root: Path) -> None:
    (root / "orders-0").rename(root / "__cluster_metadata-0")
    flip(segment(root, 1, partition="__cluster_metadata-0"), 70)
    flip(segment(root, 2, ".index", "__cluster_metadata-0"), 7)
    before = contents(root / "__cluster_metadata-0")
    result = repaired(root)
    assert result.failures == []
    assert "LOG-CRC" in {one.code for one in result.left}
    assert contents(root / "__cluster_metadata-0") == before


def test_a_dry_run_says_all_that_a_repair_does_and_touches_nothing(root: Path, tmp_path: Path) -> None:
    flip(segment(root), 70)
    flip(segment(root, 3), batch_starts(segment(root, 3))[1] + 6, bit=3)
    log = segment(root, 1, partition="orders-1")
    log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes())
    (root / "backup" / "deep").mkdir(parents=True)
    (root / "backup" / "deep" / "file").write_text("mine")
    (root / "recovery-point-offset-checkpoint").write_text("?")
    segment(root, 0, ".timeindex", "keys-0").unlink()
    before = contents(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    planned = repaired(root, dry_run=True)
    assert contents(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times
    result = repaired(root)
    assert planned.done == result.done
    assert len(planned.done) == 25
    assert (planned.left, planned.pieces, planned.bytes) == (result.left, result.pieces, result.bytes)
    assert planned.after.findings == result.after.findings


def test_a_dry_run_of_a_large_log_holds_none_of_it_in_memory(tmp_path: Path) -> None:
    import tracemalloc

    with UnifiedLog.open(tmp_path / "orders-0", clock=ManualClock(0)) as log:
        for _ in range(40):
            log.append([NewRecord(b"k", b"v" * 1_000_000, 5)])
    flip(segment(tmp_path), 70)
    repaired(tmp_path, dry_run=True)  # whatever is compiled or imported is there now
    tracemalloc.start()
    try:
        assert repaired(tmp_path, dry_run=True).is_clean
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000
