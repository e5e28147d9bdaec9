"""What cannot be asked of a log is refused in one sentence, before anything is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.logs import a_log, batch, lead
from tidelog.errors import InvalidRequestError, InvalidTopicError, StorageError
from tidelog.log import Isolation, UnifiedLog
from tidelog.records import NewRecord

Ask = Callable[[UnifiedLog], Any]


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda log: log.truncate_to(-1), "-1 is no offset"),
        (lambda log: log.truncate_to(2.5), "2.5 is no offset"),
        (lambda log: log.truncate_fully_and_start_at(-5), "-5 is no offset"),
        (lambda log: log.truncate_fully_and_start_at(10, 50), "a log start of 50"),
        (lambda log: log.delete_records(1.5), "1.5 is no offset"),
        (lambda log: log.delete_records(-5), "-5 is no offset"),
        (lambda log: log.read(3.5, 100), "3.5 is no offset"),
        (lambda log: log.read(0, 100, "COMMITTED"), "no isolation; there are Isolation.LOG_END"),
        (lambda log: log.offset_for_time(0, None), "None is no isolation"),
        (lambda log: log.append(["x"]), "'x' is no NewRecord"),
        (lambda log: log.append_as_leader(bytes(batch()), 0), "read-only"),
    ],
)
def test_a_wrong_question_changes_nothing(tmp_path: Path, ask: Ask, sentence: str) -> None:
    log = a_log(tmp_path)
    for _ in range(4):
        lead(log, batch())
    log.update_high_watermark(4)
    before = {path.name: path.read_bytes() for path in (tmp_path / "topic-0").iterdir()}
    with pytest.raises(InvalidRequestError, match=sentence):
        ask(log)
    assert {path.name: path.read_bytes() for path in (tmp_path / "topic-0").iterdir()} == before
    assert lead(log, batch()).first_offset == 4


def test_a_log_is_not_opened_where_it_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file-0").write_bytes(b"")
    with pytest.raises(StorageError, match="file-0 is not a directory"):
        UnifiedLog.open(tmp_path / "file-0")
    for name in ("or ders-1", "..-1", "orders"):
        with pytest.raises(InvalidTopicError):
            UnifiedLog.open(tmp_path / name)
    with pytest.raises(InvalidRequestError, match="a log start is a whole number"):
        UnifiedLog.open(tmp_path / "orders-0", log_start_offset=-1)
    assert [path.name for path in tmp_path.iterdir()] == ["file-0"]


def test_one_record_may_come_without_a_list_and_without_a_time(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.append(NewRecord(b"k", b"v"))
    [record] = log.records()
    assert (record.key, record.timestamp_ms) == (b"k", log.local.clock.now_ms())


def test_records_are_those_a_consumer_of_the_isolation_is_given(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=300)
    for _ in range(10):
        lead(log, batch(3))
    log.update_high_watermark(14)
    assert [record.offset for record in log.records(7)] == list(range(7, 30))
    assert [record.offset for record in log.records(7, Isolation.HIGH_WATERMARK)] == list(range(7, 12))
