"""`tidelog explain`: how an offset, or a time, is found, step by step."""

from time import time as time_now

import click

from tidelog.cli.completion import complete_topic
from tidelog.cli.output import print_json, say
from tidelog.cli.records import tell_of_unfinished

__all__ = ["explain"]


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option("--topic", required=True, metavar="T", shell_complete=complete_topic, help="The topic.")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The partition.")
@click.option("--offset", type=click.IntRange(0), metavar="O", help="Explain how this offset is found.")
@click.option(
    "--time",
    "time",
    metavar="T",
    help="Explain how a time is found: 2026-11-01T12:00:00Z, or milliseconds; -1 latest, -2 earliest, -3 largest.",
)
@click.option("--committed", is_flag=True, help="As a reader of committed transactions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    directories: tuple[str, ...],
    topic: str,
    partition: int,
    offset: int | None,
    time: str | None,
    committed: bool,
    as_json: bool,
) -> None:
    """Show the plan of a lookup: the segment, the index entries, the batches walked over, the record.

    The steps are those that a read takes, recorded while it is done. DIR as in `tidelog ls`.
    """
    import tidelog

    if (offset is None) == (time is None):
        raise click.UsageError("say what to look for: --offset O or --time T, one of them")
    logs = tidelog.open(list(directories))
    tell_of_unfinished(logs)
    part = logs[topic, partition]
    found = part.explain(offset=offset, time=None if time is None else _time_ms(time), committed=committed)
    if as_json:
        print_json(found.to_dict())
    else:
        for line in str(found).split("\n"):
            say(line)


def _time_ms(text: str) -> int:
    """A number of milliseconds, one of the special times, or a time as other commands take it."""
    from tidelog.cli.bounds import bound

    if text.removeprefix("-").isdecimal():
        return int(text)
    return bound(text, int(time_now() * 1000))[1]
