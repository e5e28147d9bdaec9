"""The golden corpus: files, dumps and answers of real Apache Kafka, to be equal to.

    case("kafka-4.3/1-codecs")                  the directory of a case, unpacked on first use
    partitions("legacy"), log_files("legacy")   its partition directories, its `.log` files; without a name, of all
    dump(partition, file, "--deep-iteration")   what Kafka's own tool printed of a file
    expected("kafka-4.3/1-codecs", "j-gzip")    what a consumer was given
    lines("wire", "java.jsonl")                 the objects of a file that has one per line

Archives are unpacked into `.cache/golden/`, one directory per archive, named after its checksum: a changed archive
is unpacked again. Tests read these directories and never write to them; copy what must change.
"""

import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARCHIVE = "files.tar.xz"
RELEASE = "kafka-4.3"


def case_names(below: str = "") -> list[str]:
    """The name of every case, or of those below a directory.

    >>> len(case_names()), len(case_names("kafka-4.3"))
    (15, 10)
    """
    return sorted(path.parent.relative_to(HERE).as_posix() for path in (HERE / below).rglob(ARCHIVE))


@functools.cache
def case(name: str) -> Path:
    """The directory that holds the files of a case."""
    archive = HERE / name / ARCHIVE
    home = ROOT / os.environ.get("TIDELOG_CACHE", ".cache") / "golden"
    target = home / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if not target.is_dir():
        _unpack(archive, target)
    return target


def _unpack(archive: Path, target: Path) -> None:
    """Unpack beside the target and rename: whoever sees the target sees all of it, and who comes second gives way."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="unpacking-", dir=target.parent))
    try:
        with tarfile.open(archive) as files:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
                files.extractall(beside, filter="data")
            else:
                files.extractall(beside)
        beside.chmod(0o755)
        beside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class Partition(NamedTuple):
    """A directory with segments: `name` is its path inside the case, `image/j-gzip-0`."""

    case: str
    name: str

    def __str__(self) -> str:
        return f"{self.case}/{self.name}"

    @property
    def path(self) -> Path:
        return case(self.case) / self.name

    @property
    def logs(self) -> list[Path]:
        """The `.log` files, in the order of their offsets."""
        return sorted(self.path.glob("*.log"))

    def read(self) -> bytes:
        """The bytes of all segments, one behind the other."""
        return b"".join(log.read_bytes() for log in self.logs)


def partitions(*names: str) -> list[Partition]:
    """Every directory that holds a `.log`, of the cases named or of all."""
    return [
        Partition(name, directory.relative_to(case(name)).as_posix())
        for name in names or case_names()
        for directory in sorted({log.parent for log in case(name).rglob("*.log")})
    ]


# Partitions of 6-recovery whose damage the broker did not look for, or did not mind, when it started.
_DAMAGE_THAT_STAYED = {
    "clean/after/c-flip-active-0",
    "clean/after/c-torn-0",
    "fatal/c-zeros-300/after/c-zeros-300-0",
    "unclean/after/u-flip-old-below-rp-0",
    "unclean/after/u-hdr-magic3-0",
}


def undamaged_partitions(*names: str) -> list[Partition]:
    """The partitions in which every byte is as Kafka wrote it."""
    variants = facts("dump-formats", "written-by-1.0.0/variants.json")
    damaged = {"before", *variants}  # `before/` holds the images of crashes; compaction calls its images `1-before/`
    return [
        partition
        for partition in partitions(*names)
        if damaged.isdisjoint(partition.name.split("/")) and partition.name not in _DAMAGE_THAT_STAYED
    ]


def log_files(*names: str) -> list[Path]:
    """Every `.log` file, of the cases named or of all."""
    return [log for partition in partitions(*names) for log in partition.logs]


class LongText(NamedTuple):
    """What the corpus keeps of an output above 20 000 bytes."""

    bytes: int
    sha256: str
    lines: int
    head: str

    @classmethod
    def of(cls, text: str, head_size: int) -> "LongText":
        data = text.encode()
        return cls(len(data), hashlib.sha256(data).hexdigest(), text.count("\n"), text[:head_size])


class Dump(NamedTuple):
    """One run of Kafka's DumpLogSegments."""

    stdout: str | LongText
    stderr: str
    exit: int

    def like(self, text: str) -> str | LongText:
        """`text` in the form that `stdout` has here, so that the two can be compared."""
        return LongText.of(text, len(self.stdout.head)) if isinstance(self.stdout, LongText) else text

    @property
    def visible(self) -> str:
        """As much of the output as the corpus keeps."""
        return self.stdout.head if isinstance(self.stdout, LongText) else self.stdout


def dump_modes(partition: Partition, file: str) -> list[str]:
    """The options with which 4.3's tool was run on a file; `plain` stands for none."""
    return list(_runs(partition.case, f"{partition.name}.json", file))


def dump(partition: Partition, file: str, mode: str = "plain") -> Dump:
    """What 4.3's tool printed of a file of a partition."""
    return _dump(partition.case, f"{partition.name}.json", file, mode)


def _dump(name: str, dump_file: str, file: str, mode: str) -> Dump:
    run = _runs(name, dump_file, file)[mode]
    if isinstance(run, str):  # "=<mode>" or "=<mode>@<dump file>"
        same_mode, _, same_dump_file = run.removeprefix("=").partition("@")
        return _dump(name, same_dump_file or dump_file, file, same_mode)
    stdout = run["stdout"]
    return Dump(LongText(**stdout) if isinstance(stdout, dict) else stdout, run.get("stderr", ""), run.get("exit", 0))


def _runs(name: str, dump_file: str, file: str) -> dict[str, Any]:
    """The runs on one file by mode. A string in their place, `"@<dump file>"`, says where to look instead."""
    runs = _load(name, f"dumps/{dump_file}")[file]
    while isinstance(runs, str):
        runs = _load(name, f"dumps/{runs.removeprefix('@')}")[file]
    return runs


class OldDump(NamedTuple):
    """One run of an older tool, as `expected/<version>.json` of the other cases keeps it."""

    dir: str
    args: list[str]
    exit: int
    stdout: str
    stderr: str


def old_dumps(name: str, release: str, below: str = "") -> Iterator[OldDump]:
    """The runs of one release's tool on the files of a case."""
    for run in _load(name, f"{below}expected/{release}.json")["cases"]:
        yield OldDump(run["dir"], run["args"], run["exit"], run.get("stdout", ""), run.get("stderr", ""))


def expected(name: str, topic: str) -> Any:
    """The answers that 4.3 gave for a topic, a partition or a round: `expected/<topic>.json`."""
    return _load(name, f"expected/{topic}.json")


def facts(name: str, file: str) -> Any:
    """Any other JSON file of a case: `facts("kafka-4.3/7-lookups", "lookups.json")`."""
    return _load(name, file)


def lines(name: str, file: str) -> Iterator[Any]:
    """The objects of a file of a case that has one per line."""
    with (case(name) / file).open(encoding="utf-8") as text:
        yield from map(json.loads, text)


@functools.lru_cache(maxsize=64)
def _load(name: str, file: str) -> Any:
    return json.loads((case(name) / file).read_text(encoding="utf-8"))
