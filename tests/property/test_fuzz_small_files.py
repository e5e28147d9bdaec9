"""A sample of damaged small files; `make campaign` has many more."""

import subprocess
import sys
from pathlib import Path


def test_damaged_small_files_give_an_answer_or_an_error_of_ours_within_a_memory_limit() -> None:
    """In a process of its own: its memory is limited."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.campaign", "--only", "small-files", "--cases", "120"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    outcomes = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    assert sum(outcomes.values()) == 120
    assert not [name for name in outcomes if name.endswith("wordless")]
    assert {"open-opened", "open-rejected", "ls-0", "fsck-1", "repair-1", "would-start-1", "dump-0"} <= outcomes.keys()
