"""Findings about batches: what they cost, however many there are."""

from typing import Any

import numpy as np

from tests.fsck.test_possible_gaps import batch
from tests.fsck.test_segment_scan import scanned
from tidelog.fsck.batch_order import Layout, Shifted
from tidelog.fsck.findings import Severity
from tidelog.fsck.log_check import note_layout
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_facts import Batches

COUNT = 200


class Counting(np.ndarray[Any, np.dtype[np.int64]]):
    """An array that counts the numbers of which a maximum is taken."""

    compared = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(one) for one in inputs]
        Counting.compared += plain[0].size if ufunc is np.maximum else 0
        return getattr(ufunc, method)(*plain, **options)


def test_the_offset_before_each_of_many_findings_is_found_in_one_pass() -> None:
    facts = scanned(b"".join(batch(offset) for offset in range(COUNT)))
    facts.batches = Batches(facts.batches.columns.view(Counting))
    layout = Layout([], [], [Shifted(0, number, 7) for number in range(COUNT)], [], [])
    notes = Notes(None)
    note_layout(notes, [facts], layout, is_clean=False, flushed=COUNT // 2)
    wanted = [Severity.ERROR] * (COUNT // 2) + [Severity.WARNING] * (COUNT // 2)
    assert [finding.severity for finding in notes.findings] == wanted
    assert Counting.compared <= 2 * COUNT
