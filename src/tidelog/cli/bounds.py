"""Where reading begins and ends, as people write it: an offset or a time.

15                          an offset
1700000000000ms             milliseconds since 1970
2026-11-01                  a day, or a moment: 2026-11-01T08:00:00Z; UTC unless it has a zone
-1h                         before now: s, m, h, d and w
now
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from tidelog.cli.completion import complete_topic

__all__ = ["range_options", "scan_options", "topic_option"]

_RELATIVE = re.compile(r"-([0-9]+)([smhdw])")
_MILLISECONDS = re.compile(r"(-?[0-9]+)ms")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

_BOUND_HELP = (
    "an offset (15) or a time: 2026-11-01, 2026-11-01T08:00:00Z, 1700000000000ms, -1h (before now; s m h d w), now."
)

Command = Callable[..., Any]


def topic_option(command: Command) -> Command:
    """`--topic`, of which there must be one."""
    return click.option("--topic", required=True, metavar="T", shell_complete=complete_topic, help="The topic.")(
        command
    )


def range_options(*end_names: str, isolation_help: str) -> Callable[[Command], Command]:
    """The options of a command that reads records: which of them. `end_names` are what the last bound is called.

    That is --until everywhere, and --to as well where nothing else is called so: the --to of `export` is its target.
    `isolation_help` says what the command does without --committed and --uncommitted.
    """

    def add(command: Command) -> Command:
        for option in reversed(_range_options(end_names, isolation_help)):
            command = option(command)
        return command

    return add


def _range_options(end_names: Sequence[str], isolation_help: str) -> list[Callable[[Command], Command]]:
    return [
        click.option(
            "--partition", "partitions", type=click.IntRange(0), multiple=True, metavar="N",
            help="Only this partition; repeatable.",
        ),
        click.option("--from", "start", metavar="BOUND", help=f"Begin with {_BOUND_HELP}"),
        click.option(
            *end_names, "end", metavar="BOUND", help="End before an offset or a time, written as with --from."
        ),
        click.option(
            "--max-lateness", metavar="SPAN",
            help="By how much a record can be older than one before it (0s, 10m): reading then stops soon after the "
            "end time. Without it, all later records are read.",
        ),
        click.option("--key", metavar="K", help="Only records with this key; base64:… for one that is not text."),
        click.option(
            "--committed/--uncommitted", default=None,
            help=f"Leave out transactions that are open or were aborted, or include them. {isolation_help}",
        ),
        click.option(
            "--salvage", "--skip-corrupt", "skip_corrupt", is_flag=True,
            help="Leave out what is damaged, read what can be read, and report the rest on standard error.",
        ),
        click.option(
            "--no-verify", is_flag=True,
            help="Do not verify checksums: batches whose only fault is the checksum are read, also at the end of a log."
            " What cannot be read is left out and reported, as with --salvage.",
        ),
    ]  # fmt: skip


def scan_options(
    *,
    partitions: tuple[int, ...],
    start: str | None,
    end: str | None,
    max_lateness: str | None,
    key: str | None,
    committed: bool,
    skip_corrupt: bool,
    no_verify: bool,
    now_ms: int,
) -> dict[str, Any]:
    """The options of a scan out of those of a command."""
    from tidelog.tables.text import bytes_of_csv

    options: dict[str, Any] = {
        "committed": committed,
        "on_corruption": "skip" if skip_corrupt or no_verify else "raise",
    }
    if no_verify:
        options["verify"] = False
    if partitions:
        options["partitions"] = partitions
    if key is not None:
        options["key"] = bytes_of_csv(key)
    if max_lateness is not None:
        options["max_lateness"] = _span_ms(max_lateness)
    for name, text in (("from", start), ("to", end)):
        if text is not None:
            kind, value = bound(text, now_ms)
            options[f"{name}_{kind}"] = value
    return options


def bound(text: str, now_ms: int) -> tuple[str, int]:
    """What a bound is, and its number.

    >>> bound("15", 0), bound("-90s", 100_000), bound("1970-01-02", 0), bound("7ms", 0)
    (('offset', 15), ('time', 10000), ('time', 86400000), ('time', 7))
    """
    from tidelog.errors import InvalidRequestError
    from tidelog.view.request import time_ms

    if text.isascii() and text.isdecimal():
        return "offset", int(text)
    if text == "now":
        return "time", now_ms
    if found := _RELATIVE.fullmatch(text):
        return "time", now_ms - int(found[1]) * _UNIT_MS[found[2]]
    if found := _MILLISECONDS.fullmatch(text):
        return "time", int(found[1])
    try:
        return "time", time_ms(text)
    except InvalidRequestError:
        raise InvalidRequestError(
            f"{text!r} is neither an offset (15) nor a time (2026-11-01, 2026-11-01T08:00Z, 1700000000000ms, -1h, now)"
        ) from None


def _span_ms(text: str) -> int:
    from tidelog.errors import InvalidRequestError

    found = _RELATIVE.fullmatch(f"-{text}")
    if found is None:
        raise InvalidRequestError(f"{text!r} is no span of time; write 0s, 10m, 2h or 7d")
    return int(found[1]) * _UNIT_MS[found[2]]
