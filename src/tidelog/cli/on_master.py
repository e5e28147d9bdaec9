"""`export` and `load` with --master: handed over to the jobs of these names on Spark.

The jobs have more options, and some of the commands' they do not have. Those are refused, not passed over.
"""

import os
from collections.abc import Callable
from typing import Any

import click

__all__ = ["export_on", "load_on", "master_option"]

Command = Callable[..., Any]


def master_option(command: Command) -> Command:
    """`--master`, with which a command runs on Spark."""
    return click.option("--master", metavar="URL", help="Do it on Spark, which runs there: local[2], spark://….")(
        command
    )


def export_on(master: str, directories: tuple[str, ...], topic: str, target: str, **given: Any) -> None:
    """`tidelog spark export`, of a topic, to a directory of parquet files."""
    from tidelog.cli.jobs.tables import export
    from tidelog.view.pieces import SCAN_COLUMNS

    form, columns, compression = given.pop("form"), given.pop("columns"), given.pop("compression")
    is_forced, is_committed, is_skipping = (given.pop(name) for name in ("force", "committed", "skip_corrupt"))
    as_json, no_verify = given.pop("as_json"), given.pop("no_verify")
    _ensure_parquet(form, target, "export")
    _ensure_none_left(given, "export")
    names = [name.strip() for name in (columns or ",".join(SCAN_COLUMNS)).split(",")]
    reading = {"columns": ",".join(names), "includeHeaders": "true" if "headers" in names else "false"}
    if is_committed is None:
        is_committed = not is_skipping  # damage can hide the marker of a transaction
    reading["isolationLevel"] = "read_committed" if is_committed else "read_uncommitted"
    if is_skipping or no_verify:
        reading["onCorruption"] = "skip"
    if no_verify:
        reading["checksum"] = "false"
    _invoke(
        export, master, directories=directories, topics=(topic,), target=target, is_table=False, form="parquet",
        options=(f"compression={compression or 'zstd'}",), reading=_words(reading),
        mode="overwrite" if is_forced else "error", partition_by=None, key="binary", value="binary", schema=None,
        checkpoint=None, as_json=as_json,
    )  # fmt: skip


def load_on(master: str, sources: tuple[str, ...], directory: str, topic: str, **given: Any) -> None:
    """`tidelog spark load`, of parquet files."""
    from tidelog.cli.jobs.tables import load
    from tidelog.cli.settings import settings_of

    form, partitions, compression = given.pop("form"), given.pop("partitions"), given.pop("compression")
    settings, topic_id, as_json = given.pop("settings"), given.pop("topic_id"), given.pop("as_json")
    is_only_log_dir = given.pop("is_only_log_dir")
    for source in sources:
        _ensure_parquet(form, source, "load")
    _ensure_none_left(given, "load")
    writing = settings_of(settings) | ({} if topic_id is None else {"topicId": topic_id})
    if is_only_log_dir:
        writing["onlyLogDir"] = "true"
    _invoke(
        load, master, sources=sources, directory=directory, topic=topic, form="parquet", options=(), schema=None,
        key=None, value=None, timestamp=None, partitions=partitions, compression=compression, writing=_words(writing),
        as_json=as_json,
    )  # fmt: skip


def _ensure_parquet(form: str | None, path: str, job: str) -> None:
    """The text formats of the commands write bytes in a way of their own, which Spark does not know."""
    from tidelog.tables.formats import format_of

    is_directory = path.endswith("/") or not os.path.splitext(path)[1]
    kind = form or ("parquet" if is_directory else format_of(path))
    if kind != "parquet":
        raise click.UsageError(f"with --master the format is parquet; `tidelog spark {job}` takes those of Spark")


def _ensure_none_left(given: dict[str, Any], job: str) -> None:
    options = {parameter.name: parameter.opts[-1] for parameter in click.get_current_context().command.params}
    left = sorted(options[name] for name, value in given.items() if value)
    if left:
        raise click.UsageError(f"{left[0]} does not go with --master; see `tidelog spark {job} --help`")


def _invoke(job: click.Command, master: str, **wishes: Any) -> None:
    click.get_current_context().invoke(job, master=master, conf=(), packages=None, verbose=False, **wishes)


def _words(pairs: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in pairs.items())
