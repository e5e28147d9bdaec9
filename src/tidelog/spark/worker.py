"""The Python processes that Spark starts: for tasks, for plans and for commits. They are used again and again."""

import gc
import sys
from functools import cache

__all__ = ["prepare_worker"]


@cache
def prepare_worker() -> None:
    """Once in the life of such a process: let what is loaded by now be passed over by the garbage collector.

    Spark has it run after every call, over all that numba and Arrow have brought along: longer than a plan takes.
    A program of the user's own is left alone.
    """
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name.startswith("pyspark."):
        gc.collect()
        gc.freeze()
