"""Writes of ours that were interrupted: from which offsets on readers see nothing of them.

A commit of Spark's and a load append to several logs in one step: what they do stands in a journal in the root, that is
removed at the end. As long as it lies there, the next write brings the commit to its end, or takes the load back; up to
then the logs are shown as they were. A broker that was started meanwhile has taken what is there for its own, and its
high watermarks tell of it: then everything is shown.
"""

import json
from typing import Any

from tidelog.errors import CheckpointError
from tidelog.log.files import ReadFileSystem, join, read_whole
from tidelog.log.names import COMMIT_JOURNAL, TopicPartition

__all__ = ["ends_before"]


def ends_before(files: ReadFileSystem, root: str, name: str) -> dict[TopicPartition, int]:
    """Where the logs ended before what a journal tells of; empty if there is none."""
    path = join(root, name)
    if files.stat(path) is None:
        return {}
    try:
        content = json.loads(read_whole(files, path))
        return _of_commit(content) if name == COMMIT_JOURNAL else _of_load(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no journal that this release can read ({error})") from None


def _of_commit(content: dict[str, Any]) -> dict[TopicPartition, int]:
    plans = content["partitions"]
    return {TopicPartition(str(plan[0]), int(plan[1])): 0 if plan[2] else int(plan[3]) for plan in plans}


def _of_load(content: dict[str, Any]) -> dict[TopicPartition, int]:
    notes = content["partitions"].items()
    found = {int(number): 0 if note["is_new"] else note["end"] for number, note in notes}
    return {TopicPartition(content["topic"], number): end for number, end in found.items() if end is not None}
