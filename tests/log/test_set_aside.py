"""Offsets that go back in a log, and markers that cannot be read: recovery keeps what lies before
them, reports what it cut, and sets that aside.
"""

from contextlib import suppress
from pathlib import Path

from tests.log.logs import (
    a_log,
    bases_of,
    batch,
    epochs_of,
    fill,
    lead,
    names_in,
    offsets_in,
    opened_again,
    sealed,
    unreadable_marker,
)
from tests.log.manager.managers import ORDERS, a_manager
from tidelog.fsck import check
from tidelog.log import UnifiedLog
from tidelog.log.set_aside import SET_ASIDE
from tidelog.testing.disk import PowerLost, SimulatedFileSystem


def stamped(offset: int, records: int = 1) -> bytearray:
    """A batch as a leader of epoch 0 writes it."""
    return batch(records, base_offset=offset, partition_leader_epoch=0)


def write_behind_the_back(log: UnifiedLog, *batches: bytes | bytearray) -> None:
    """Put batches at the end of the active segment that the log does not know of."""
    path = log.active_segment.log.path
    file = log.local.fs.open_write(path)
    for data in batches:
        file.write_at(file.size, data)
    file.close()
    log.release()


def aside(log: UnifiedLog) -> dict[str, bytes]:
    """What is set aside, by name."""
    fs, found = log.local.fs, {}
    for name in names_in(log):
        if name.startswith(SET_ASIDE):
            file = fs.open(f"{log.directory}/{name}")
            found[name] = file.read(0, file.size)
            file.close()
    return found


def test_what_comes_after_offsets_that_go_back_is_set_aside(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    lead(log, 1)
    size = log.size
    cut = stamped(1) + stamped(2, 3)
    write_behind_the_back(log, cut)

    log = opened_again(log)

    assert offsets_in(log) == [0, 1]
    name = f"{SET_ASIDE}{0:020}-at-{size}.batches"
    assert aside(log) == {name: bytes(cut)}
    [notice] = log.notices
    assert f"{len(cut)} bytes of {log.active_segment.log.path} from position {size} on" in notice
    assert "offsets 1 to 1, where offsets from 2 on are expected" in notice
    assert name in notice
    assert lead(log, 1).first_offset == 2
    assert opened_again(log).notices == ()


def test_segments_after_offsets_that_go_back_are_set_aside_too(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [2, 2, 2], epoch=3)
    rest = Path(log.segments[2].log.path).read_bytes()
    middle = Path(log.segments[1].log.path)
    middle.write_bytes(middle.read_bytes() + stamped(2))
    log.release()

    log = opened_again(log)

    assert offsets_in(log) == [0, 1, 2, 3]
    assert bases_of(log) == [0, 2]
    assert epochs_of(log) == [(3, 0)]
    assert sorted(map(len, aside(log).values())) == sorted([len(stamped(2)), len(rest)])
    assert aside(log)[f"{SET_ASIDE}{4:020}-at-0.batches"] == rest
    assert not names_in(log, f"{4:020}.index")


def test_a_marker_that_cannot_be_read_is_set_aside_with_what_follows(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    size = log.size
    cut = unreadable_marker(1) + stamped(2) + stamped(3, 4)
    write_behind_the_back(log, cut)

    log = opened_again(log)

    assert offsets_in(log) == [0]
    name = f"{SET_ASIDE}{0:020}-at-{size}.batches"
    assert aside(log) == {name: bytes(cut)}
    [notice] = log.notices
    assert f"{len(cut)} bytes of {log.active_segment.log.path} from position {size} on" in notice
    assert "a marker that cannot be read: a control key of version -256" in notice
    assert name in notice
    assert lead(log, 1).first_offset == 1
    log.release()
    log = opened_again(log)
    assert (offsets_in(log), log.notices) == ([0, 1], ())


def test_segments_after_a_marker_that_cannot_be_read_are_set_aside_too(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [2, 2])
    rest = Path(log.segments[1].log.path).read_bytes()
    first = Path(log.segments[0].log.path)
    first.write_bytes(first.read_bytes()[: len(stamped(0))] + unreadable_marker(1))
    log.release()
    log = opened_again(log)
    assert set(aside(log).values()) == {bytes(unreadable_marker(1)), rest}


def test_a_marker_of_an_unknown_compression_is_set_aside_too(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    unknown = sealed(unreadable_marker(1), {22: 0x37})
    write_behind_the_back(log, unknown)
    log = opened_again(log)
    assert (offsets_in(log), list(aside(log).values())) == ([0], [bytes(unknown)])


def test_the_first_of_two_reasons_to_cut_is_the_one_that_counts(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    size = log.size
    cut = unreadable_marker(1) + stamped(2) + stamped(0)
    write_behind_the_back(log, cut)
    log = opened_again(log)
    assert aside(log) == {f"{SET_ASIDE}{0:020}-at-{size}.batches": bytes(cut)}
    assert "cannot be read" in log.notices[0]


def test_nothing_that_was_set_aside_before_is_overwritten(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    for records in (1, 2):
        write_behind_the_back(log, stamped(0, records))
        log = opened_again(log)
    assert sorted(map(len, aside(log).values())) == [len(stamped(0)), len(stamped(0, 2))]
    assert offsets_in(log) == [0]


def test_a_crash_while_batches_are_set_aside_loses_none_of_them() -> None:
    disk = SimulatedFileSystem()
    log = a_log("/data", fs=disk)
    fill(log, [3, 2])
    first = log.segments[0].log.path
    file = disk.open_write(first)
    file.write_at(file.size, stamped(1))
    log.release()
    disk.sync_all()
    whole = {bytes(stamped(1)), disk.open(log.segments[1].log.path).read(0, 1 << 20)}

    def recovered(on: SimulatedFileSystem) -> UnifiedLog:
        return a_log("/data", fs=on)

    calls = recovered(disk.copy()).local.fs.calls  # type: ignore[attr-defined]
    for call in range(1, calls + 1):
        image = disk.copy()
        image.sync_all()
        image.cut_at(call)
        with suppress(PowerLost):
            recovered(image)
        log = recovered(image.after_crash())
        assert offsets_in(log) == [0, 1, 2]
        assert whole <= set(aside(log).values()), f"cut at call {call}"


def test_a_manager_reports_what_recovery_has_cut(tmp_path: Path) -> None:
    manager = a_manager(tmp_path)
    log = manager.get_or_create(ORDERS)
    lead(log, 2)
    write_behind_the_back(log, stamped(0))
    for root in manager.roots:
        root.unlock()
    with a_manager(tmp_path) as manager:
        assert [SET_ASIDE in notice for notice in manager.notices] == [True]
        assert offsets_in(manager.logs[ORDERS]) == [0, 1]


def test_a_torn_batch_is_cut_and_reported_and_not_kept(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    write_behind_the_back(log, stamped(1)[:-5])
    log = opened_again(log)
    assert offsets_in(log) == [0]
    assert not aside(log)
    [notice] = log.notices
    assert notice.endswith("were cut off by recovery: an incomplete batch")


def test_fsck_says_what_was_set_aside(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    write_behind_the_back(log, stamped(0))
    opened_again(log).close()
    [finding] = check([tmp_path]).findings
    assert (finding.code, str(finding.severity)) == ("PAR-FOREIGN", "warning")
    assert "recovery set aside" in finding.message
