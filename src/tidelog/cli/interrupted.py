"""Before a command writes into a root: what was interrupted there is brought to its end."""

import os

from tidelog.cli.output import tell
from tidelog.log.names import COMMIT_JOURNAL

__all__ = ["settle_write"]


def settle_write(directory: str) -> None:
    """Roll a commit of Spark's forward, if one was interrupted, and say so."""
    if os.path.exists(os.path.join(directory, COMMIT_JOURNAL)):
        from tidelog.spark.commit import roll_forward  # which takes Arrow

        roll_forward(directory)
        tell(f"{directory}: a write of Spark's that was interrupted is brought to its end")
