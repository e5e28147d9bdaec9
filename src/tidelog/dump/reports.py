"""What the tool tells on standard error when all files are done: entries that do not fit the log, gaps, disorder."""

from collections.abc import Iterator

from tidelog.dump.hash_order import hash_order
from tidelog.dump.java_text import JavaFile
from tidelog.dump.output import Output
from tidelog.dump.releases import Release

__all__ = ["Findings", "Reports"]

_Pair = tuple[int, int]


class Findings:
    """Pairs of numbers by file."""

    def __init__(self) -> None:
        self._pairs: dict[str, list[_Pair]] = {}

    def note(self, file: JavaFile, first: int, second: int) -> None:
        self._pairs.setdefault(file.absolute, []).append((first, second))

    def __iter__(self) -> Iterator[tuple[str, list[_Pair]]]:
        yield from self._pairs.items()

    def __len__(self) -> int:
        return len(self._pairs)


class Reports:
    """The five lists of one run."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self.mismatches = Findings()  # index offset, log offset
        self.time_mismatches = Findings()  # index timestamp, log timestamp
        self.disorder = Findings()  # timestamp, the one before it
        self.missing = Findings()  # indexed offset, offset found
        self.gaps = Findings()  # offset, the one that follows

    def write(self, err: Output) -> None:
        """Write all lists, file by file.

        Files come in the order of 4.3's hash map. Before, it was a hash map of Scala's, in another order under each
        version of Scala that a release was built for; there they come in the order in which they were dumped.
        """
        release = self._release
        for file, pairs in self._in_order(self.mismatches):
            err.write(f"Mismatches in :{file}\n")
            for one, other in self._arranged(pairs)[::-1]:
                err.write(f"  Index offset: {one}, log offset: {other}\n")
        for file, pairs in self._in_order(self.time_mismatches):
            err.write(f"Found timestamp mismatch in :{file}\n")
            for one, other in pairs:
                err.write(f"  Index timestamp: {one}, log timestamp: {other}\n")
        for file, pairs in self._in_order(self.disorder):
            err.write(f"Found out of order timestamp in :{file}\n")
            for one, other in pairs:
                err.write(f"  Index timestamp: {one}, Previously indexed timestamp: {other}\n")
        for file, pairs in self._in_order(self.missing):
            place = f":{file}" if release.missing_names_file else "the log."
            err.write(f"The following indexed offsets are not found in {place}\n")
            for one, other in pairs:
                err.write(f"Indexed offset: {one}, found log offset: {other}\n")
        for file, pairs in self._in_order(self.gaps):
            err.write(f"{release.gap_title}{file}\n")
            for one, other in self._arranged(pairs)[:: 1 if release.reports_by_offset else -1]:
                err.write(f"  {one} is followed by {other}\n")

    def _in_order(self, findings: Findings) -> list[tuple[str, list[_Pair]]]:
        by_file = dict(findings)
        names = list(by_file)
        if names and self._release.reports_in_hash_order:
            names = hash_order(names, last_came_again=len(by_file[names[-1]]) > 1)
        return [(file, by_file[file]) for file in names]

    def _arranged(self, pairs: list[_Pair]) -> list[_Pair]:
        if self._release.reports_by_offset:
            return sorted(dict(pairs).items())  # one per offset: the last one stays
        return pairs
