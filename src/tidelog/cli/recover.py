"""`tidelog recover`: finish or take back interrupted writes, and recover logs after an unclean stop."""

import click

from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.log_dirs import config_option, is_empty, named_or_configured
from tidelog.cli.output import print_json, say

__all__ = ["recover"]


@click.command()
@click.argument("directories", nargs=-1, type=LOCAL_PATH, metavar="DIR...")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per log directory.")
@click.option(
    "--like-kafka", is_flag=True,
    help="Cut off sound batches after a damaged one, too, as Kafka does when it starts. `fsck --repair` keeps them.",
)  # fmt: skip
def recover(directories: tuple[str, ...], config: str | None, as_json: bool, like_kafka: bool) -> None:
    """Put log directories in order after an interrupted write or an unclean stop, while no broker runs.

    An interrupted write of Spark's is finished: all of its records are there afterwards. An interrupted load is taken
    back: none of them is; run it again. Until then neither Kafka nor tidelog starts on DIR, and readers see the
    topics as they were before.

    Either way the batches from before the write stay as they are, damaged ones too. Anything else that is cut off is
    printed.

    Where the broker was not stopped in good order, logs are recovered as Kafka recovers them when it starts: an
    incomplete batch at the end of a log is cut off, and indexes are rebuilt. Every cut is printed, with its bytes,
    offsets and reason. If sound batches come after a damaged one, Kafka cuts them off, too: then the logs of DIR are
    left as they are, and `tidelog fsck --repair` keeps these batches. With --like-kafka they are cut off.

    Recovery lowers the checkpoints to what is there. Before that, it prints every partition whose log ends before its
    recovery point, or whose directory is missing: flushed records are lost. A high watermark after the log end is
    printed as a note, since a power loss may take records that were not flushed.

    Name all log.dirs of a broker at once, or give --config. Run it as the user of the broker, or as root: new
    files then get the owner of the old ones.

    Exit codes: 0 nothing is lost but an incomplete batch at the end of a log; 1 more was cut off, flushed records are
    missing, or logs were left as they are.
    """
    from tidelog.errors import InvalidRequestError
    from tidelog.spark.recovery import recover as recover_directories

    directories = named_or_configured(directories, config)
    for directory in directories:
        if is_empty(directory):
            raise InvalidRequestError(f"{directory} is empty: name the log directories of a broker")
    all_done = recover_directories(directories, like_kafka=like_kafka)
    for done in all_done:
        if as_json:
            print_json(done.to_dict())
        else:
            say(str(done))
            for notice in done.notices:
                say(notice)
            for loss in done.losses:
                say(str(loss))
            for cut in done.cuts:
                if done.were_logs_recovered or cut.loses_sound_batches:
                    say(f"{'would be cut' if done.is_rejected else 'cut'}: {cut}")
    raise click.exceptions.Exit(0 if all(done.is_harmless for done in all_done) else 1)
