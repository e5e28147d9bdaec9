"""The commands: one verb per job, thin over a library call.

A module per command, each importing nothing heavier than click at its top: `tidelog --help` must answer at once, so
numpy, pyarrow, numba and rich are imported inside the function that needs them.
"""

__all__ = ["main"]

try:
    from tidelog.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before there is a command that could handle it; `INTERRUPTED` is not loaded yet
    raise SystemExit(130) from None
