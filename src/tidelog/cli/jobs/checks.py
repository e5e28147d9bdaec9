"""`tidelog spark verify` and `tidelog spark diff`: `fsck` and `diff` by many machines."""

import os
from typing import Any

import click

from tidelog.cli import diff as diff_command
from tidelog.cli import fsck as fsck_command
from tidelog.cli.spark import on_spark, spark_options

__all__ = ["diff", "verify"]

_part_option = click.option(
    "--part-mb", type=click.FloatRange(0, min_open=True), default=64, show_default=True, metavar="N",
    help="Megabytes of a segment that a task reads.",
)  # fmt: skip


@click.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Look at every record, and replay producers.")
@click.option("--quarantine", metavar="DIR", help="Where earlier repairs keep what they took; by default DIR.tidelog.")
@_part_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, that of `tidelog fsck --json`.")
@spark_options
def verify(
    directories: tuple[str, ...], deep: bool, quarantine: str | None, part_mb: float, as_json: bool, **wishes: Any
) -> None:
    """Check every file at or below DIR, as `tidelog fsck` does, on Spark.

    Nothing is written and nothing locked. The findings are those of `tidelog fsck`, which also mends.

    Exit codes: 0 nothing wrong, 1 findings.
    """
    from tidelog.fsck.places import find_places
    from tidelog.spark.jobs.verify import absolute_paths
    from tidelog.view.addresses import file_system_of

    names = absolute_paths(directories)
    find_places(file_system_of(names), names)  # says what is wrong with them
    with on_spark("verify", **wishes) as (session, on_tasks):
        from tidelog.spark.jobs.verify import verify as run

        report = run(
            session, directories, deep=deep, quarantine=quarantine, part_bytes=_bytes(part_mb), on_tasks=on_tasks
        )
    fsck_command.end_with(report, directories, as_json=as_json)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--topic", "topics", multiple=True, metavar="T", help="A topic; repeatable. Without it all of them.")
@click.option("--strict", is_flag=True, help="Both sides must begin and end at the same offsets.")
@click.option(
    "--verify/--no-verify", "is_verified", default=True,
    help="Compare every checksum with its batch; or believe them and read headers only.",
)  # fmt: skip
@click.option("--records", is_flag=True, help="Where batches differ, look whether the records in them do.")
@click.option("--ignore-epochs", is_flag=True, help="Leader epochs may differ, as between clusters.")
@_part_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition, as `tidelog diff` does.")
@spark_options
def diff(
    a: str,
    b: str,
    topics: tuple[str, ...],
    strict: bool,
    is_verified: bool,
    records: bool,
    ignore_epochs: bool,
    part_mb: float,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Compare the logs of A and B batch by batch, as `tidelog diff` does, on Spark.

    Exit codes: 0 nothing contradicts, 1 differences, 2 wrong usage, 3 something could not be read.
    """
    from tidelog.fsck.diff import DiffOptions, chosen, partitions_of

    one, two = _absolute(a), _absolute(b)
    wanted = list(dict.fromkeys(topics)) or None
    chosen(
        sorted({*partitions_of(one), *partitions_of(two)}), wanted
    )  # says what is not there, before Spark is started
    with on_spark("diff", **wishes) as (session, on_tasks):
        from tidelog.spark.jobs.diff import diff as run

        found = run(
            session,
            one,
            two,
            topics=wanted,
            strict=strict,
            options=DiffOptions(is_verified, not ignore_epochs, records),
            part_bytes=_bytes(part_mb),
            on_tasks=on_tasks,
        )
    diff_command.end_with(found, as_json=as_json, is_verified=is_verified)


def _absolute(side: str) -> list[str]:
    return [path if "://" in path else os.path.abspath(path) for path in diff_command.paths_of_side(side)]


def _bytes(megabytes: float) -> int:
    return max(int(megabytes * (1 << 20)), 1)
