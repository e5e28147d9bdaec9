"""A sample of damaged tables; `make campaign` reads many more."""

import subprocess
import sys
from pathlib import Path


def test_damaged_tables_give_rows_or_an_error_of_ours_within_a_memory_limit() -> None:
    """In a process of its own: its memory is limited, and a wild address would end it."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.campaign", "--only", "tables", "--cases", "600"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    outcomes = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    assert sum(outcomes.values()) == 600
    assert not [name for name in outcomes if name.endswith("wordless")]
    assert {"arrow-read", "arrow-rejected", "parquet-read", "parquet-rejected"} <= outcomes.keys()
