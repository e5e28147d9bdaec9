"""Finish or take back unfinished writes in log directories, before a command writes to them."""

from collections.abc import Sequence

from tidelog.cli.output import tell
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.write_journal import journal_path

__all__ = ["log_directories", "settle_writes"]


def settle_writes(directories: Sequence[str]) -> None:
    """Settle the unfinished writes in log directories, and say so."""
    unfinished = [directory for directory in directories if journal_path(LocalFileSystem(), directory) is not None]
    if unfinished:
        from tidelog.spark.recovery import recover  # which takes Arrow

        for done in recover(unfinished, logs=False):
            for sentence in (str(done), *done.notices):
                tell(sentence)


def log_directories(paths: Sequence[str]) -> list[str]:
    """The log directories at or below some paths."""
    from tidelog.fsck.places import find_places

    return [place.path for place in find_places(LocalFileSystem(), paths)]
