"""A directory that another process appends to, rolls, deletes from and compacts while it is read.

The process does one round of work for every line it is sent and tells what must be there now. A reader begins to read
as the line goes out, so each of its walks meets a round of changes.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.log.compaction.compacting import Producer, a_compacted_log, compact, settle
from tests.log.logs import a_log, all_replicated, batch, lead
from tidelog.log import UnifiedLog
from tidelog.records import NewRecord, Record
from tidelog.view import LogDirView, PartitionView
from tidelog.view import open as open_view

ROUNDS = 8
PER_ROUND = 12
KEYS = 5


def value_of(offset: int, status: str = "good") -> bytes:
    return f"{status} {offset} ".encode() * 3


def append(log: UnifiedLog, producer: Producer | None = None) -> None:
    """A batch of three records whose values tell their offsets; those of a producer belong to a transaction."""
    first = log.log_end_offset
    records = [
        NewRecord(b"%d" % (offset % KEYS), value_of(offset, "bad" if producer else "good"), 1_700_000_000_000 + offset)
        for offset in range(first, first + 3)
    ]
    if producer is None:
        lead(log, batch(records))
    else:
        options: dict[str, Any] = {"producer_epoch": 0, "is_transactional": True}
        lead(log, batch(records, producer_id=producer.producer_id, base_sequence=producer._sequence, **options))
        producer._sequence += 3


def work(root: str) -> None:
    """What the process does."""
    deleted = a_log(root, name="deleted-0", segment_bytes=700, index_interval_bytes=200, retention_bytes=2500)
    compacted = a_compacted_log(root, name="compacted-0", segment_bytes=900, index_interval_bytes=200)
    liar = Producer(compacted, 7, is_transactional=True)
    for number, _ in enumerate(sys.stdin):
        for step in range(PER_ROUND):
            append(deleted)
            append(compacted)
            if step % 4 == 1:
                append(compacted, liar)
                append(compacted)
                liar.abort()
        all_replicated(deleted)
        all_replicated(compacted)
        deleted.delete_old_segments()
        compact(compacted)
        if number % 2:
            settle(deleted)
            settle(compacted)
        told = {
            "deleted": [deleted.log_start_offset, deleted.log_end_offset],
            "compacted": [compacted.log_start_offset, compacted.log_end_offset],
        }
        print(json.dumps(told), flush=True)  # noqa: T201 - this is how it tells


def check(records: list[Record], *, committed: bool) -> list[int]:
    """Every record is one that was appended, and they come in order, each once."""
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    for record in records:
        assert record.key == b"%d" % (record.offset % KEYS)
        good = record.value == value_of(record.offset)
        assert good or (not committed and record.value == value_of(record.offset, "bad"))
    return offsets


def read(logs: LogDirView, topic: str, *, committed: bool = False) -> tuple[PartitionView, list[int]]:
    view = logs[topic, 0]
    return view, check(list(view.read(committed=committed)), committed=committed)


def test_only_valid_records_in_order_are_read_of_a_directory_that_changes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.view.test_live", str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        before = json.loads(process.stdout.readline())
        held: list[PartitionView] = []
        walks = 0
        for _ in range(ROUNDS):
            process.stdin.write("\n")
            process.stdin.flush()
            logs = open_view(tmp_path)
            found = {}
            for topic in ("deleted", "compacted"):
                for committed in (False, True):
                    view, offsets = read(logs.refresh(), topic, committed=committed)
                    assert offsets[-1] == view.log_end_offset - 1 or committed or topic == "compacted"
                    held.append(view)
                    walks += 1
                    found[topic, committed] = offsets
            for old in held[-8:-4]:  # views of the rounds before
                check(list(old.read()), committed=False)
                walks += 1
            after = json.loads(process.stdout.readline())
            kept = set(range(after["deleted"][0], before["deleted"][1]))
            assert kept <= set(found["deleted", False])
            assert kept <= set(found["deleted", True])
            # Compaction keeps the last of each key: one of a key must lie at or after the last one there was before.
            last = before["compacted"][1]
            for committed in (False, True):
                offsets = found["compacted", committed]
                assert {offset % KEYS for offset in offsets if offset >= last - 25} == set(range(KEYS))
            before = after
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert walks > 7 * ROUNDS
    assert before["deleted"][0] > 20 * ROUNDS


if __name__ == "__main__":
    work(sys.argv[1])
