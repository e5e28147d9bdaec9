"""A read-only look at directories as they lie there: live, copied, torn, deleted or remote.

    logs = tidelog.open("kafka-logs")
    for record in logs["orders", 0].read(from_offset=15): ...
    print(logs["orders", 0].explain(offset=15))

`opening` finds the roots, `log_dirs` and `root` what is in them, `copies` which copy of a partition is read. `look`
tells which segments there are while they change, `stretches` walks over them, `transactions` knows what was aborted.
`scan` makes tables of it, out of `pieces` that can be read anywhere; these two want pyarrow, and are imported when they
are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.view.copies import Copy
from tidelog.view.log_dirs import LogDirView
from tidelog.view.opening import open
from tidelog.view.partition import PartitionView
from tidelog.view.root import RootView
from tidelog.view.segment import SegmentView
from tidelog.view.stretches import Stretch

if TYPE_CHECKING:
    from tidelog.view.pieces import Piece, read_piece
    from tidelog.view.scan import Scan

__all__ = [
    "Copy",
    "LogDirView",
    "PartitionView",
    "Piece",
    "RootView",
    "Scan",
    "SegmentView",
    "Stretch",
    "open",
    "read_piece",
]

_LATER = {"Piece": "pieces", "Scan": "scan", "read_piece": "pieces"}


def __getattr__(name: str) -> Any:
    """One of the names that need pyarrow."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
