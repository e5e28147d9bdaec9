"""Loads of a process that may open few files: done, or taken back with one sentence."""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tests.fsck.roots_on_disk import contents
from tests.log.logs import NOW
from tests.property.real_limits import few_descriptors
from tests.tables.loads import load_here
from tidelog.errors import TidelogError
from tidelog.fsck import check
from tidelog.log.clock import ManualClock
from tidelog.spark.recovery import recover
from tidelog.tables.load import load_table


def load_more(root: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"more"] * 5, "partition": [0, 1, 2, 3, 4]})
    load_table([rows], str(root), "orders", partitions=5, clock=ManualClock(NOW), rng=random.Random(7))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with three partitions of the five that rows are loaded into. One load was done: everything is imported."""
    root = tmp_path_factory.mktemp("limits") / "root"
    load_here(str(root))
    load_more(Path(shutil.copytree(root, root.parent / "other")))
    return root


@pytest.mark.parametrize("left", [*range(16), 40])
def test_a_load_with_few_descriptors_is_done_or_taken_back(sound: Path, tmp_path: Path, left: int) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "root"))
    problem = None
    try:
        with few_descriptors(left, tmp_path):
            load_more(root)
    except TidelogError as error:
        problem = str(error)
    if problem is None:
        assert contents(root) == contents(sound.parent / "other")
    else:
        assert "Too many open files" in problem
        assert "\n" not in problem
        recover([str(root)])
        assert contents(root) == contents(sound)
        assert left < 40
    assert check([str(root)]).is_clean
