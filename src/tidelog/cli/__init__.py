"""The commands: one verb per job, thin over a library call.

A module per command, each importing nothing heavier than click at its top: `tidelog --help` must answer at once, so
numpy, pyarrow, numba and rich are imported inside the function that needs them.
"""

from tidelog.cli.main import main

__all__ = ["main"]
