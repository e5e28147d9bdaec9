"""`tidelog spark export` and `tidelog spark load`: tables out, tables in, by Spark's readers and writers."""

import json
import os
from collections.abc import Mapping
from typing import Any

import click

from tidelog.cli.bounds import topic_option
from tidelog.cli.completion import complete_topic
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.output import count, print_json, say, table
from tidelog.cli.records import tell_of_ends, tell_of_unfinished
from tidelog.cli.spark import on_spark, pairs_of, spark_options

__all__ = ["export", "load"]

_NOT_ALL = 1


@click.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic,
    help="A topic; repeatable. Without it all but Kafka's own.",
)  # fmt: skip
@click.option("--to", "target", required=True, metavar="PATH", help="Where to; with --table the name of a table.")
@click.option("--table", "is_table", is_flag=True, help="The target is a table of a catalog.")
@click.option("--format", "form", default="parquet", show_default=True, metavar="F", help="Any that Spark writes.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of that format; repeatable.")
@click.option(
    "--read-option", "reading", multiple=True, metavar="NAME=VALUE",
    help="An option of format(\"tidelog\"), such as startingTimestamp=… or includeHeaders=true; repeatable.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(["error", "append", "overwrite", "ignore"]), default="error", show_default=True,
    help="What if there is something at the target already.",
)  # fmt: skip
@click.option("--partition-by", metavar="C,…", help="Columns that become directories.")
@click.option("--key", type=click.Choice(["binary", "string"]), default="binary", show_default=True)
@click.option("--value", type=click.Choice(["binary", "string", "json"]), default="binary", show_default=True)
@click.option("--schema", metavar="DDL", help='Of values that are JSON: "item INT, cents BIGINT".')
@click.option("--checkpoint", metavar="DIR", help="Write what is new since the run before, which this directory knows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@spark_options
def export(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    target: str,
    is_table: bool,
    form: str,
    options: tuple[str, ...],
    reading: tuple[str, ...],
    mode: str,
    partition_by: str | None,
    key: str,
    value: str,
    schema: str | None,
    checkpoint: str | None,
    as_json: bool,
    **spark: Any,
) -> None:
    """Write records with Spark: parquet, orc, json, csv, delta, whatever it has a writer for.

    Values that are not what was asked for (no UTF-8, no JSON of the schema) are null, and stand in the column
    _corrupt_record.

    CSV gets a heading, and quotes inside of fields are doubled, unless --option says otherwise.

    With --checkpoint a second run adds the records that have come since, and no others.

    Records of aborted and open transactions are left out; --read-option isolationLevel=read_uncommitted includes them.

    What could not be read at the end of a log is reported on standard error with its offsets and bytes.

    Exit codes: 0 all was written, 1 some values went to _corrupt_record, or something was left out.
    """
    from tidelog.spark.jobs.export import ExportWishes
    from tidelog.spark.jobs.export import export as run
    from tidelog.spark.jobs.formats import OPTIONS_OF_FORMATS, SETTINGS_OF_FORMATS

    wishes = ExportWishes(
        form,
        {**OPTIONS_OF_FORMATS.get(form.lower(), {}), **pairs_of(options, "--option")},
        {**pairs_of(reading, "--read-option"), **({"subscribe": ",".join(topics)} if topics else {})},
        mode,
        [name.strip() for name in (partition_by or "").split(",") if name.strip()],
        key,
        value,
        schema,
        None if checkpoint is None else _absolute(checkpoint),
        is_table,
    )
    wishes.ensure_sound()
    paths = [_absolute(path) for path in directories]
    _ensure_readable(paths, topics)
    if spark["packages"]:
        known = SETTINGS_OF_FORMATS.get(form.lower(), {})
        spark["conf"] = (*(f"{name}={text}" for name, text in known.items()), *spark["conf"])
    with on_spark("export", **spark) as (session, on_tasks):
        done = run(session, paths, target if is_table else _absolute(target), wishes, on_tasks=on_tasks)
    if as_json:
        print_json(done._asdict())
    else:
        say(f"{count(done.records, 'record')} to {done.target}{_of_batches(done.batches)}")
        if done.corrupt:
            say(f"{count(done.corrupt, 'value')} in _corrupt_record")
        if done.damaged:
            where = f"`tidelog fsck --deep {directories[0]}` tells where"
            say(f"{count(done.damaged, 'damaged place')} left out: {where}", err=True)
    is_cut = _tell_of_ends(paths, wishes.reading, is_stream=checkpoint is not None)
    raise click.exceptions.Exit(_NOT_ALL if done.corrupt or done.damaged or is_cut else 0)


def _tell_of_ends(paths: list[str], reading: Mapping[str, str], *, is_stream: bool) -> bool:
    """Report what could not be read at the end of logs, as `tidelog export` does; whether that is a finding.

    Spark's tasks end where the log ends. Only who reads to that end has asked for what lies there.
    """
    import tidelog
    from tidelog.spark.option_values import OptionValues
    from tidelog.spark.read_options import ReadOptions

    options = ReadOptions.of(OptionValues({**reading, "paths": json.dumps(paths)}), is_stream=is_stream)
    if options.reach.end_bound != "logEnd" or any(name.lower().startswith("ending") for name in reading):
        return False
    places = options.places
    logs = tidelog.open(places.paths, replica=places.replica, storage_options=dict(places.storage) or None)
    tell_of_unfinished(logs)
    return tell_of_ends([logs[partition] for partition in options.topics.choose(logs)], {})


@click.command()
@click.argument("sources", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--to", "directory", required=True, type=LOCAL_PATH, metavar="DIR", help="The log directory; a new one is made."
)
@topic_option
@click.option(
    "--format",
    "form",
    metavar="F",
    help="Any that Spark reads. Without it the name of the first file tells.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of that format; repeatable.")
@click.option("--schema", metavar="DDL", help="The columns of the source, where it does not tell them.")
@click.option("--key", metavar="COLUMN", help="The column that becomes the key; without it the column key.")
@click.option("--value", metavar="COLUMN", help='The column that becomes the value, or "json" for the whole row.')
@click.option(
    "--timestamp", metavar="COLUMN", help="The column that becomes the time; without it the column timestamp."
)
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="How many partitions a new topic gets.")
@click.option(
    "--compression", default="none", show_default=True, metavar="CODEC", help="none, gzip, snappy, lz4, zstd."
)
@click.option(
    "--write-option", "writing", multiple=True, metavar="NAME=VALUE",
    help="An option of format(\"tidelog\"), such as segment.bytes=…; repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per partition.")
@spark_options
def load(
    sources: tuple[str, ...],
    directory: str,
    topic: str,
    form: str | None,
    options: tuple[str, ...],
    schema: str | None,
    key: str | None,
    value: str | None,
    timestamp: str | None,
    partitions: int | None,
    compression: str,
    writing: tuple[str, ...],
    as_json: bool,
    **spark: Any,
) -> None:
    """Append a table to a topic of a log directory, with Spark.

    A row goes to the partition that it names, else where Kafka's producers put its key (murmur2); rows without a key
    are dealt out. A new topic gets the partitions that rows name. Rows of a partition keep the order of the column
    offset, or of the source. Columns that are no part of a record are passed over. Times are timestamps, or numbers of
    milliseconds.

    CSV has a heading, and quotes inside of fields are doubled, unless --option says otherwise. A file of it is read by
    one task: --option multiLine=false lets more do it, where no field has more than one line.
    """
    from tidelog.spark.jobs.formats import OPTIONS_OF_FORMATS, format_of
    from tidelog.spark.jobs.load import LoadWishes
    from tidelog.spark.jobs.load import load as run

    form = form or format_of(sources[0])
    wishes = LoadWishes(
        form,
        {**OPTIONS_OF_FORMATS.get(form.lower(), {}), **pairs_of(options, "--option")},
        schema,
        key,
        value,
        timestamp,
        partitions,
        {"compression": compression, **pairs_of(writing, "--write-option")},
    )
    with on_spark("load", **spark) as (session, on_tasks):
        done = run(session, [_absolute(path) for path in sources], directory, topic, wishes, on_tasks=on_tasks)
    if as_json:
        for each in done:
            print_json(
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "records": each.records,
                    "first_offset": each.first_offset,
                    "next_offset": each.next_offset,
                }
            )
    else:
        rows = [
            (str(each.partition), f"{each.records:,}", f"{each.first_offset} to {each.next_offset - 1}")
            for each in done
        ]
        table(("partition", "records", "offsets"), rows)


def _ensure_readable(paths: list[str], topics: tuple[str, ...]) -> None:
    """Refuse what is not there before Spark is started."""
    if not any("://" in path for path in paths):
        import tidelog

        logs = tidelog.open(paths)
        for topic in topics:
            logs[topic]  # says so if there is none


def _absolute(path: str) -> str:
    return path if ":/" in path else os.path.abspath(os.path.expanduser(path))


def _of_batches(number: int | None) -> str:
    return "" if number is None else f", in {count(number, 'batch')}" if number else ", nothing new"
