"""`tidelog spark profile`: what is in the topics, as a table, as JSON, and as a report with plots."""

import os
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.completion import complete_topic
from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.output import print_json, say, short, size, table
from tidelog.cli.spark import on_spark, spark_options

if TYPE_CHECKING:
    from tidelog.spark.jobs.profile import Profile

__all__ = ["profile"]


@click.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--topic", "topics", multiple=True, metavar="T", shell_complete=complete_topic,
    help="A topic; repeatable. Without it all but Kafka's own.",
)  # fmt: skip
@click.option(
    "--report", type=LOCAL_PATH, metavar="FILE", default="tidelog-profile.html", show_default=True,
    help="The report; an empty name for none.",
)  # fmt: skip
@click.option("--committed", is_flag=True, help="Leave out transactions that were aborted, or are open.")
@click.option(
    "--part-mb", type=click.FloatRange(0, min_open=True), default=64, show_default=True, metavar="N",
    help="Megabytes of a segment that a task reads.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@spark_options
def profile(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    report: str,
    committed: bool,
    part_mb: float,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Count what is in the topics of log directories, and write a report with plots: one HTML file.

    Records and bytes by topic, partition, key and time; sizes of records and batches; what each codec and batch size
    would make of them, measured on samples; and what follows from all that.

    Hot keys are counted exactly up to 4,096 of them in a topic, beyond that by a summary (Misra-Gries) that tells how
    far off it can be; how many keys there are is then known to about 1 % (HyperLogLog). Damaged batches are left out
    and told of.
    """
    import tidelog
    from tidelog.tables.new_file import ensure_free

    paths = [path if "://" in path else os.path.abspath(os.path.expanduser(path)) for path in directories]
    if not any("://" in path for path in paths):
        logs = tidelog.open(paths)
        for topic in topics:
            logs[topic]  # says so if there is none
    if report and not os.path.isdir(os.path.dirname(os.path.abspath(report))):
        raise click.UsageError(f"{os.path.dirname(os.path.abspath(report))} is no directory for the report")
    if report:
        ensure_free(report, force=True)
    with on_spark("profile", **wishes) as (session, on_tasks):
        from tidelog.spark.jobs.profile import profile as run
        from tidelog.spark.jobs.profile_json import profile_dict
        from tidelog.spark.jobs.report import write_report

        found = run(
            session, paths, topics=topics, committed=committed, part_bytes=max(int(part_mb * (1 << 20)), 1),
            on_tasks=on_tasks,
        )  # fmt: skip
    written = write_report(found, report) if report else None
    if as_json:
        print_json({**profile_dict(found), "report": written})
        return
    _show(found)
    if written:
        say(f"report: {written}")


def _show(found: "Profile") -> None:
    from tidelog.spark.jobs.advice import advice_for, codec_in_use
    from tidelog.spark.jobs.profile_json import peak_and_mean

    rows = []
    for topic in found.topics:
        facts = topic.facts
        peak, _ = peak_and_mean(facts.times)
        rows.append(
            (
                topic.name, f"{len(topic.partitions)}", f"{facts.records:,}", size(facts.stored),
                size(round(facts.sizes.mean)), f"{facts.distinct_keys:,}", f"{short(round(peak))}/s",
                codec_in_use(facts),
            )
        )  # fmt: skip
    table(
        ("topic", "partitions", "records", "stored", "mean record", "keys", "peak", "codec"), rows,
        least=("mean record", "partitions", "peak"), cut=("topic",),
    )  # fmt: skip
    for topic in found.topics:
        for one in advice_for(topic):
            if one.weight == "change":
                say(f"{topic.name}: {one.subject}: {one.text}")
