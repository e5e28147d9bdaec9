"""Print what a load has appended to each partition."""

from collections.abc import Iterable

from tidelog.cli.output import print_json, table
from tidelog.log.names import TopicPartition

__all__ = ["show_loaded"]


def show_loaded(done: Iterable[tuple[TopicPartition, int, int, int]], *, as_json: bool) -> None:
    """Print, for each partition, how many records it got, their first offset and the next one."""
    if not as_json:
        rows = [(str(place), f"{records:,}", _offsets(first, following)) for place, records, first, following in done]
        table(("partition", "records", "offsets"), rows)
        return
    for (topic, partition), records, first, following in done:
        print_json(
            {
                "topic": topic,
                "partition": partition,
                "records": records,
                "first_offset": first,
                "next_offset": following,
            }
        )


def _offsets(first: int, following: int) -> str:
    return f"{first} to {following - 1}" if following > first else "-"
