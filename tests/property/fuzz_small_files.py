"""Small files of a log directory, damaged by someone who knows their formats, under limits of memory and time.

The directory is one that Kafka 4.3 wrote: a metadata log with snapshots and quorum-state, transactions, idempotent
producers. A case damages one or two of its small files: producer snapshots, checkpoints, leader epochs,
partition.metadata, meta.properties, indexes, transaction indexes, quorum-state, snapshots of the metadata log and the
log itself. Lengths, counts, versions and numbers are replaced, entries are repeated, names say other offsets, and
checksums are put right again, so that what is behind them is reached. Then the directory is opened and read, listed,
checked, repaired, or the file is dumped. Each succeeds or raises an error of ours, within a second or so.

    run(seed, cases)    judges cases; the first that ends otherwise is raised with what is needed to see it again
"""

import json
import os
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from click.testing import CliRunner

from tests.golden import corpus
from tidelog.cli.main import cli
from tidelog.errors import TidelogError
from tidelog.log import LogManager
from tidelog.log.names import CLEAN_SHUTDOWN, CLUSTER_METADATA_DIRECTORY
from tidelog.records.checksum import crc32c_of

MEMORY_BYTES = 512 << 20  # above what the process has when it begins
SECONDS = 30  # many times what a case takes on a busy machine
MOST_GROWN = 1 << 20
_BOMB_SHARE = 0.01
_METADATA = CLUSTER_METADATA_DIRECTORY
_TRANSACTIONS = ("idem-raw-0", "txn-gzip-0", "txn-multi-0", "txn-multi-1")
_NUMBERS = (0, 1, -1, 2, 7, 46, 127, 128, 255, 4_096, 2**15 - 1, 2**16, 2**24, 2**31 - 1, -(2**31), 2**32 - 1, 2**62,
            2**63 - 1, -(2**63))  # fmt: skip
_TOKENS = (
    b"", b" ", b"\n", b"\r", b"\0", b"\xff\xfe", b"=", b":", b"-", b"0", b"-1", b"1e9", b"0x10", b"NaN", b"9" * 5_000,
    b"2147483648", b"9223372036854775807", b"9223372036854775808", b"\\u12", b"\\", b"[" * 20_000, b'{"a":' * 20_000,
    b'"', b"null", b"[]", b"{}", b"../..", b"\xe2\x80\xae", b"\xd9\xa3", b"x" * 300, b"version", b"\n" * 5_000,
)  # fmt: skip

Files = dict[str, bytes]
Damage = Callable[[random.Random, bytes], bytes]


class Late(BaseException):
    """A case takes too long. No handler of an Exception stops it."""


def run(seed: int, cases: int) -> Counter[str]:
    """Judge cases of a seed, counted by kind of file and by what became of them. Memory of this process is limited."""
    files = sound_files()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tidelog-small-") as place:
        root = Path(place) / "root"
        for use in _USES:  # all that a case needs is loaded before the limit
            _lay_out(files, root)
            _USES[use](root, root / "meta.properties")
        _limit_memory()
        for case in range(cases):
            rng = random.Random(f"{seed}/{case}")
            damaged = _lay_out(files, root)
            names = [_damage_one(rng, root, sorted(damaged)) for _ in range(rng.choice((1, 1, 1, 2)))]
            if rng.random() < 0.3:  # after a crash more is read
                (root / CLEAN_SHUTDOWN).unlink()
            use = rng.choice(list(_USES))
            began = time.monotonic()
            try:
                with _limited_time():
                    outcome = _USES[use](root, root / names[0])
            except (Exception, Late) as error:
                took = f"{time.monotonic() - began:.1f} s"
                raise AssertionError(
                    f"seed {seed}, case {case}, {use} of {', '.join(names)}: {type(error).__name__}: {error} ({took})"
                ) from error
            outcomes[f"{use}-{outcome}"] += 1
    return outcomes


def sound_files() -> Files:
    """The files of a root that Kafka wrote, by their path in it."""
    root = corpus.case("kafka-4.3/9-metadata") / "image"
    more = corpus.case("kafka-4.3/4-transactions") / "image"
    places = [(root, path) for path in root.rglob("*")]
    places += [(more, path) for name in _TRANSACTIONS for path in (more / name).iterdir()]
    return {path.relative_to(home).as_posix(): path.read_bytes() for home, path in places if path.is_file()}


def _lay_out(files: Files, root: Path) -> Files:
    """Make a root anew; which of its files a case may damage."""
    shutil.rmtree(root, ignore_errors=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {name: data for name, data in files.items() if not name.endswith(".log") or name.startswith(_METADATA)}


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


@contextmanager
def _limited_time() -> Iterator[None]:
    def late(signal_number: int, frame: FrameType | None) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- uses ----------------------------------------------------------------------------------------------------------


def _open(root: Path, path: Path) -> str:
    """Open every log as a broker does, and read it by offset, by time and by epoch."""
    try:
        with LogManager.open(str(root)) as manager:
            for log in list(manager.logs.values()):
                try:
                    log.read(log.log_start_offset, 4_096)
                    log.read(log.log_end_offset // 2, 4_096)
                    log.offset_for_time(1_700_000_000_000)
                    log.end_offset_for_epoch(0)
                    for _ in zip(range(50), log.records(), strict=False):
                        pass
                except TidelogError:
                    continue
    except TidelogError as error:
        return "rejected" if str(error) else "wordless"
    return "opened"


def _command(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 1, 3), f"exit code {done.exit_code}: {done.output}"  # 2 would be a wrong usage
    assert done.output or done.exit_code == 0, "an exit code without a word"
    return str(done.exit_code)


def _verdict(root: Path, path: Path) -> str:
    """Ask for the verdict: there is one on any directory that can be listed."""
    code = _command("fsck", "--would-start", str(root))
    assert code in ("0", "1"), f"exit code {code} in the place of a verdict"
    return code


def _dump(root: Path, path: Path) -> str:
    options = {".checkpoint": ["--cluster-metadata-decoder"], ".log": ["--cluster-metadata-decoder"]}
    return _command("dump-log", "--files", str(path), *options.get(path.suffix, ["--print-data-log"]))


_USES: dict[str, Callable[[Path, Path], str]] = {
    "open": _open,
    "ls": lambda root, path: _command("ls", "-l", str(root)),
    "fsck": lambda root, path: _command("fsck", "--deep", str(root)),
    "would-start": _verdict,
    "repair": lambda root, path: _command("fsck", "--repair", str(root)),
    "dump": _dump,
}


# -- damage --------------------------------------------------------------------------------------------------------


def _damage_one(rng: random.Random, root: Path, names: list[str]) -> str:
    """Damage a file; its name then."""
    kind = rng.choice(list(_KINDS))
    name = rng.choice([name for name in names if name.endswith(kind)])
    path = root / name
    if not path.exists():
        return name
    data = path.read_bytes()
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_KINDS[kind])(rng, data)
    path.write_bytes(data)
    if rng.random() < 0.05 and path.name[:1].isdigit():
        digits = len(path.name) - len(path.name.lstrip("0123456789"))
        other = rng.choice(("9" * 20, "9223372036854775807", "0" * 19 + "5", "7", "0" * 20, "1" * 200))
        renamed = path.with_name(other[-200:] + path.name[digits:])
        os.replace(path, renamed)
        return renamed.relative_to(root).as_posix()
    return name


def _number(rng: random.Random, old: int) -> int:
    return rng.choice(_NUMBERS) if rng.random() < 0.6 else old + rng.choice((-8, -1, 1, 8, 46, 1_000))


def _put(rng: random.Random, data: bytes, place: int, form: str) -> bytes:
    """Another number in the place of one."""
    size = struct.calcsize(form)
    if place < 0 or place + size > len(data):
        return data
    value = _number(rng, struct.unpack_from(form, data, place)[0]) % (1 << 8 * size)
    return data[:place] + value.to_bytes(size, "big") + data[place + size :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _grow(rng: random.Random, data: bytes) -> bytes:
    times = min(rng.choice((0, 1, 500)), MOST_GROWN // (len(data) + 1))
    return data + bytes(rng.choice((1, 12, 4_096, 10_000))) + data * times


def _any_byte(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]


def _entries(form: str, header: int = 0) -> Damage:
    """Another number in a field of an entry, or entries repeated, left out or exchanged."""
    size = struct.calcsize(">" + form)

    def damage(rng: random.Random, data: bytes) -> bytes:
        head, rest = data[:header], data[header:]
        entries = [rest[at : at + size] for at in range(0, len(rest), size)] or [bytes(size)]
        place = rng.randrange(len(entries))
        deed = rng.randrange(6)
        if deed < 3:
            field = rng.randrange(len(form))
            at = struct.calcsize(">" + form[:field])
            entries[place] = _put(rng, entries[place], at, ">" + form[field])
        elif deed == 3:
            entries[place:place] = [entries[place]] * rng.choice((1, 2, 1_000))
        elif deed == 4:
            del entries[place]
        else:
            rng.shuffle(entries)
        return (head + b"".join(entries))[:MOST_GROWN]

    return damage


def _snapshot_header(rng: random.Random, data: bytes) -> bytes:
    return _put(rng, data, *rng.choice(((0, ">h"), (2, ">I"), (6, ">i"))))


def _summed_snapshot(damage: Damage) -> Damage:
    """The damage, and the count and the checksum of a producer snapshot as they should be."""

    def summed(rng: random.Random, data: bytes) -> bytes:
        data = damage(rng, data)
        if len(data) < 10 or rng.random() < 0.1:
            return data
        count = struct.pack(">i", (len(data) - 10) // 46) if rng.random() < 0.7 else data[6:10]
        body = count + data[10:]
        return data[:2] + struct.pack(">I", crc32c_of(body)) + body

    return summed


def _text(rng: random.Random, data: bytes) -> bytes:
    """Another field in a line, or lines repeated, exchanged or left out."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    deed = rng.randrange(7)
    if deed < 3:
        fields = lines[place].split(rng.choice((b" ", b"=", b",", b":")))
        at = rng.randrange(len(fields))
        fields[at] = rng.choice((*_TOKENS, *(b"%d" % number for number in _NUMBERS)))
        lines[place] = b" ".join(fields) if deed else b"=".join(fields)
    elif deed == 3:
        lines[place:place] = [lines[place]] * min(rng.choice((1, 2, 5_000)), MOST_GROWN // (len(lines[place]) + 1))
    elif deed == 4:
        del lines[place]
    elif deed == 5:
        rng.shuffle(lines)
    else:
        at = rng.randrange(len(data) + 1)
        return data[:at] + rng.choice(_TOKENS) + data[at:]
    return b"\n".join(lines)[:MOST_GROWN]


def _json(rng: random.Random, data: bytes) -> bytes:
    """Another value of a member, of any type, or one more member."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _text(rng, data)
    if not isinstance(value, dict) or not value:
        return _text(rng, data)
    name = rng.choice((*value, "currentVoters", "data_version", "leaderId", "leaderEpoch", "votedDirectoryId", "x"))
    values = (
        None,
        True,
        -1,
        2**31,
        2**63,
        10**400,
        1.5,
        "",
        "x" * 5_000,
        [],
        {},
        [[]],
        [{}],
        [{"voterId": 2**31}],
        {"a": [0] * 9},
    )
    value[name] = rng.choice(values)
    return json.dumps(value).encode()


def _batches(data: bytes) -> list[bytes]:
    """The pieces of a file of batches, by their lengths as far as they go."""
    pieces = []
    while len(data) >= 12:
        size = 12 + int.from_bytes(data[8:12], "big")
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data] if data or not pieces else pieces


# Of a batch: base offset, length, leader epoch, magic, crc, attributes, last delta, times, producer, sequence, count.
_BATCH_FIELDS = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">B"), (17, ">I"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
    (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip


def _batch(rng: random.Random, data: bytes) -> bytes:
    """Damage to a batch: its header, its records, its order. Its checksum is right again, mostly its length too."""
    pieces = _batches(data)
    place = rng.randrange(len(pieces))
    piece = pieces[place]
    deed = rng.randrange(10)
    if deed < 3:
        piece = _put(rng, piece, *rng.choice(_BATCH_FIELDS))
    elif deed < 8 and len(piece) > 62:
        piece = _records(rng, piece)
    elif deed == 8:
        pieces[place:place] = [piece] * rng.choice((1, 2, 50))
    else:
        rng.shuffle(pieces)
    pieces[place] = _summed(rng, piece)
    return b"".join(pieces)[:MOST_GROWN]


def _records(rng: random.Random, piece: bytes) -> bytes:
    """Other bytes among the records of a batch, where varints, lengths and counts of metadata are."""
    if rng.random() < _BOMB_SHARE:
        body = _bomb(rng.choice((1, 64, 700)))
        return piece[:21] + b"\0\1" + piece[23:57] + struct.pack(">i", rng.choice((1, 1_000, 2**31 - 1))) + body
    at = rng.randrange(61, len(piece))
    new = rng.choice(
        (bytes([rng.randrange(256)]), b"\0", b"\1", b"\x7f", b"\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07",
         b"\x80" * 12, b"\xfe\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x04", b"")
    )  # fmt: skip
    return piece[:at] + new + piece[at + rng.choice((0, 1, 1, 1, len(new))) :]


@cache
def _bomb(mebibytes: int) -> bytes:
    """A stream of gzip that becomes so much."""
    stream = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    return b"".join(stream.compress(bytes(1 << 20)) for _ in range(mebibytes)) + stream.flush()


def _summed(rng: random.Random, piece: bytes) -> bytes:
    if len(piece) < 61 or rng.random() < 0.1:
        return piece
    if rng.random() < 0.8:
        piece = piece[:8] + struct.pack(">i", len(piece) - 12) + piece[12:]
    return piece[:17] + struct.pack(">I", crc32c_of(piece[21:])) + piece[21:]


_ANY: list[Damage] = [_cut, _grow, _any_byte]
_TEXTS: list[Damage] = [*_ANY, _text, _text, _text]
_KINDS: dict[str, list[Damage]] = {
    ".snapshot": [
        *_ANY,
        _snapshot_header,
        *map(_summed_snapshot, (*_ANY, _snapshot_header, _entries("qhiqiqiq", 10), _entries("qhiqiqiq", 10))),
    ],
    ".index": [*_ANY, _entries("ii"), _entries("ii")],
    ".timeindex": [*_ANY, _entries("qi"), _entries("qi")],
    ".txnindex": [*_ANY, _entries("hqqqq"), _entries("hqqqq")],
    ".checkpoint": [_cut, _grow, *[_batch] * 8],
    f"{_METADATA}/00000000000000000000.log": [_cut, _grow, *[_batch] * 6],
    "-offset-checkpoint": _TEXTS,
    "leader-epoch-checkpoint": _TEXTS,
    "partition.metadata": _TEXTS,
    "meta.properties": _TEXTS,
    "quorum-state": [*_TEXTS, _json, _json, _json],
}
