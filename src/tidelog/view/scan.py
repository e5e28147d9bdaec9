"""A table over logs: read as often as one likes, a bit at a time, by anything that takes Arrow.

    scan = tidelog.open("kafka-logs").scan("orders", columns=["key", "offset"], from_time="2026-11-01")
    scan.count()                                       by batch headers where that is enough
    for batch in scan: ...                             pyarrow RecordBatches
    duckdb.sql("select count(*) from scan")            through the Arrow stream interface
    scan.pieces(64 << 20)                              the same rows as tasks for others: `read_piece`

Rows come by topic, by partition, and then in the order of offsets. Every reading takes a new look at the directory, so
that it sees what was appended meanwhile; `pinned()` keeps to one look.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple, NoReturn, TypedDict

import pyarrow as pa

from tidelog.columns.schema import TimestampUnit
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.view.files import ViewFiles
from tidelog.view.partition import EndBound, PartitionView, ensure_flag
from tidelog.view.pieces import OnCorruption, Piece, count_piece, read_piece, scan_schema
from tidelog.view.pruning import plan, unverified_tail
from tidelog.view.request import Offsets, Request, Time

__all__ = ["Scan", "ScanOptions"]

_BYTES_OF_A_THREAD = 32 << 20  # what several threads read ahead stays small

Look = Callable[[], Sequence[PartitionView]]


class ScanOptions(TypedDict, total=False):
    """What a scan can be asked for. `Scan.of` and `Request.of` tell what each means."""

    columns: Sequence[str] | None
    verify: bool
    timestamp_unit: TimestampUnit
    on_corruption: OnCorruption
    threads: int
    partitions: int | Collection[int] | None
    from_offset: Offsets | None
    to_offset: Offsets | None
    from_time: Time | None
    to_time: Time | None
    max_lateness: int | timedelta | None
    key: bytes | str | None
    key_partitions: int | None
    committed: bool
    end_bound: EndBound


class _Task(NamedTuple):
    """A piece, and the files it lies in."""

    piece: Piece
    files: ViewFiles


class Scan:
    """The rows of some partitions, as RecordBatches of one schema. `Scan.of` makes one.

    `notices` tells what the last reading left out: damage (`on_corruption="skip"`), segments that have lost all their
    batches, and records of a write that is under way or was interrupted.
    """

    def __init__(
        self,
        look: Look,
        request: Request,
        *,
        columns: Sequence[str] | None = None,
        verify: bool = True,
        timestamp_unit: TimestampUnit = "ms",
        on_corruption: OnCorruption = "raise",
        threads: int = 1,
    ) -> None:
        if on_corruption not in ("raise", "skip"):
            raise InvalidRequestError(f"on_corruption {on_corruption!r}, known are 'raise' and 'skip'")
        if threads < 1:
            raise InvalidRequestError(f"{threads} threads: there is at least one")
        self.schema: pa.Schema = scan_schema(columns, timestamp_unit)
        self.notices: list[str] = []
        self._look = look
        self._request = request
        self._verify = verify
        self._unit: TimestampUnit = timestamp_unit
        self._on_corruption: OnCorruption = on_corruption
        self._threads = threads

    @classmethod
    def of(
        cls,
        look: Look,
        *,
        columns: Sequence[str] | None = None,
        verify: bool = True,
        timestamp_unit: TimestampUnit = "ms",
        on_corruption: OnCorruption = "raise",
        threads: int = 1,
        **wishes: Any,
    ) -> "Scan":
        """A scan of the partitions that `look` gives, as they are when it is called.

        Args:
            columns: names out of docs/scan.md, in the order wanted; the eight of Spark's Kafka source without it.
            verify: compare checksums. Without it complete batches after the end of the log are read, too, where only
                their checksums put them there.
            timestamp_unit: "ms", as Kafka stores them, or "us", as Spark wants them.
            on_corruption: "raise", or "skip": leave out what is damaged, and tell in `notices`.
            threads: how many read at once, which pays where batches are compressed; rows come in the same order.
            wishes: which records, in the arguments of `Request.of`: `from_offset`, `to_time`, `key`, `committed` ...
        """
        _ensure_known(wishes)
        ensure_flag(verify, "verify")
        return cls(
            look, Request.of(**wishes), columns=columns, verify=verify, timestamp_unit=timestamp_unit,
            on_corruption=on_corruption, threads=threads,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Scan({', '.join(self.schema.names)})"

    def pinned(self) -> "Scan":
        """The same scan of the partitions as they are now, however often it is read."""
        partitions = self._look()
        return Scan(
            lambda: partitions, self._request, columns=self.schema.names, verify=self._verify,
            timestamp_unit=self._unit, on_corruption=self._on_corruption, threads=self._threads,
        )  # fmt: skip

    # -- reading -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.notices = []
        if self._threads > 1:
            yield from self._read_in_threads()
        else:
            for task in self._tasks(None):
                yield from self._read(task, self.notices)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that is read once."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a DataFrame; the options are those of Arrow's `Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A stream for whoever speaks Arrow's C interface; each call is a new reading."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """pandas.DataFrame(scan) and numpy.array(scan) ask for this; without it they take the batches for objects."""
        raise TypeError("a scan is no array: scan.to_pandas() makes a DataFrame of it, scan.to_table() an Arrow table")

    def count(self) -> int:
        """How many rows there are. Headers of batches are enough unless single rows are asked for.

        Checksums are not compared, except with `on_corruption="skip"`: then all rows are read, to know which there are.
        """
        if self._on_corruption == "skip":
            return sum(batch.num_rows for batch in self)
        self.notices = []
        return sum(count_piece(piece, files=files) for piece, files in self._tasks(None))

    def pieces(self, max_bytes: int | None = None) -> list[Piece]:
        """The same rows as tasks that can be pickled, of about `max_bytes` each; without it, of a segment each.

        `read_piece` reads one. Each row is in exactly one of them.
        """
        if max_bytes is not None and max_bytes < 1:
            raise InvalidRequestError(f"pieces of {max_bytes} bytes: they have one at least")
        self.notices = []
        return [task.piece for task in self._tasks(max_bytes)]

    def _tasks(self, max_bytes: int | None) -> Iterator[_Task]:
        for partition in self._request.choose(self._look()):
            hidden = partition.unfinished_notice
            if hidden is not None and hidden not in self.notices:
                self.notices.append(hidden)
            lost = deque(self._request.lost_segments(partition))
            for piece in plan(partition, self._request, max_bytes=max_bytes, notices=self._skipped()):
                while lost and lost[0].first_offset < piece.segment:
                    self.notices.append(str(lost.popleft()))
                yield _Task(piece, partition.files)
            self.notices += map(str, lost)
            tail = None if self._verify else unverified_tail(partition, self._request)
            if tail is not None:
                yield _Task(tail, partition.files)

    def _skipped(self) -> list[str] | None:
        return self.notices if self._on_corruption == "skip" else None

    def _read(self, task: _Task, notices: list[str]) -> Iterator[pa.RecordBatch]:
        return read_piece(
            task.piece, self.schema.names, files=task.files, verify=self._verify, timestamp_unit=self._unit,
            on_corruption=self._on_corruption, notices=notices,
        )  # fmt: skip

    def _read_in_threads(self) -> Iterator[pa.RecordBatch]:
        """Each thread reads a piece to its end; as many wait to be delivered as there are threads."""

        def read(task: _Task) -> tuple[list[pa.RecordBatch], list[str], Exception | None]:
            batches: list[pa.RecordBatch] = []
            notices: list[str] = []
            try:
                for batch in self._read(task, notices):
                    batches.append(batch)  # noqa: PERF402 - those before an error count
            except TidelogError as error:
                return batches, notices, error
            return batches, notices, None

        tasks = self._tasks(_BYTES_OF_A_THREAD)
        with ThreadPoolExecutor(self._threads, "tidelog-scan") as threads:
            waiting: deque[Future[tuple[list[pa.RecordBatch], list[str], Exception | None]]] = deque(
                threads.submit(read, task) for task in islice(tasks, self._threads)
            )
            while waiting:
                batches, notices, error = waiting.popleft().result()
                waiting.extend(threads.submit(read, task) for task in islice(tasks, 1))
                self.notices += notices
                yield from batches
                if error is not None:
                    raise error


def _ensure_known(wishes: Iterable[str]) -> None:
    """Refuse a name as Python does, with the nearest that there is."""
    known = ScanOptions.__annotations__
    for name in wishes:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f"do you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise TypeError(f"a scan has no option {name!r}; {hint}")
