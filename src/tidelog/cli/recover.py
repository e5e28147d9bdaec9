"""`tidelog recover`: finish or take back interrupted writes, and recover logs after an unclean stop."""

import click

from tidelog.cli.local_paths import LOCAL_PATH
from tidelog.cli.output import print_json, say

__all__ = ["recover"]


@click.command()
@click.argument("directories", nargs=-1, required=True, type=LOCAL_PATH, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per log directory.")
def recover(directories: tuple[str, ...], as_json: bool) -> None:
    """Put log directories in order after an interrupted write or an unclean stop, while no broker runs.

    An interrupted write of Spark's is finished: all of its records are there afterwards. An interrupted load is taken
    back: none of them is; run it again. Until then neither Kafka nor tidelog starts on DIR, and readers see the
    topics as they were before.

    Where the broker was not stopped in good order, logs are recovered as Kafka recovers them when it starts: an
    incomplete batch at the end of a log is cut off, and indexes are rebuilt.

    Name all log.dirs of a broker at once. Run it as the user of the broker, or as root: new files then get the owner of
    the old ones.
    """
    from tidelog.spark.recovery import recover as recover_directories

    for done in recover_directories(directories):
        if as_json:
            print_json(done.to_dict())
        else:
            say(str(done))
