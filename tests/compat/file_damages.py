"""Damage to the files and directories of a broker, each with a name: what disks, copies and people leave behind.

FILE_DAMAGES["the mark of a clean stop is a directory"](roots, random.Random(5))
"""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.compat.bootstrap_bytes import BOOTSTRAP_BYTES
from tests.compat.record_damages import METADATA, framed
from tests.log.logs import sealed
from tidelog.records import NewRecord, build_batch, read_batches

UID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "OimrddjSTw20XAh5VnF0_A"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)  # fmt: skip
ROOT_FILES = (*CHECKPOINTS, ".kafka_cleanshutdown", "bootstrap.checkpoint", "meta.properties", ".lock")
METADATA_FILES = ("quorum-state", "leader-epoch-checkpoint", "partition.metadata")
LOG_FILES = ("leader-epoch-checkpoint", "partition.metadata")

Roots = Sequence[Path]
Damage = Callable[[Roots, random.Random], object]


def log_of(roots: Roots, partition: str) -> Path:
    """The directory of a partition."""
    (found,) = [root / partition for root in roots if (root / partition).is_dir()]
    return found


def no_file(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def as_directory(path: Path, *, is_full: bool = False) -> None:
    no_file(path)
    path.mkdir()
    if is_full:
        (path / "notes.txt").write_text("x")


def as_link(path: Path) -> None:
    """A link to the same file or directory, elsewhere."""
    target = path.parent.parent / f"elsewhere-{path.name}"  # outside of the root
    path.rename(target)
    path.symlink_to(target)


def as_loose_link(path: Path) -> None:
    no_file(path)
    path.symlink_to(path.parent / "nowhere")


WAYS: dict[str, Callable[[Path], object]] = {
    "is missing": no_file,
    "is a directory": as_directory,
    "is a directory with files": lambda path: as_directory(path, is_full=True),
    "is a link that leads nowhere": as_loose_link,
    "is empty": lambda path: (no_file(path), path.write_bytes(b"")),
    "is zeros": lambda path: (no_file(path), path.write_bytes(bytes(64))),
}


def to_root_file(name: str, number: int, way: str) -> Damage:
    return lambda roots, rng: WAYS[way](roots[number] / name)


def to_file(partition: str, name: str, way: str) -> Damage:
    return lambda roots, rng: WAYS[way](log_of(roots, partition) / name)


def to_segment(partition: str, suffix: str, way: str, *, is_last: bool) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        files = sorted(log_of(roots, partition).glob(f"*{suffix}"))
        WAYS[way](files[-1 if is_last else 0])

    return hurt


def to_batch(partition: str, number: int, changes: dict[int, int], *, is_sealed: bool) -> Damage:
    """Change bytes of a batch of the last segment, under a right checksum or not."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        path = sorted(log_of(roots, partition).glob("*.log"))[-1]
        batches = [bytes(batch.buffer) for batch in read_batches(path.read_bytes())]
        plain = bytes(changes.get(at, byte) for at, byte in enumerate(batches[number]))
        batches[number] = sealed(batches[number], changes) if is_sealed else plain
        put(path, b"".join(batches))

    return hurt


def writes(partition: str, name: str, data: bytes) -> Damage:
    return lambda roots, rng: put(log_of(roots, partition) / name, data)


def put(path: Path, data: bytes) -> None:
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(data)


def writes_root(number: int, name: str, data: bytes) -> Damage:
    return lambda roots, rng: put(roots[number] / name, data)


def makes_directory(partition: str, name: str) -> Damage:
    return lambda roots, rng: (log_of(roots, partition) / name).mkdir()


def renames(partition: str, name: str) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        path = log_of(roots, partition)
        path.rename(path.parent / name)

    return hurt


def renames_segment(partition: str, name: str, *, is_last: bool = False) -> Damage:
    """A segment with all its files gets another base offset in its name."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        logs = sorted(log_of(roots, partition).glob("*.log"))
        stem = logs[-1 if is_last else 0].stem
        for path in list(logs[0].parent.glob(f"{stem}.*")):
            path.rename(path.with_name(path.name.replace(stem, name)))

    return hurt


def copies(partition: str, name: str, to: int | None = None) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        path = log_of(roots, partition)
        shutil.copytree(path, (path.parent if to is None else roots[to]) / name)

    return hurt


def in_identity(number: int, change: Callable[[str], str]) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        path = roots[number] / "meta.properties"
        path.write_text(change(path.read_text(encoding="iso-8859-1")), encoding="iso-8859-1")

    return hurt


def with_value(name: str, value: str | None) -> Callable[[str], str]:
    """Another value of a property; None removes it."""
    return lambda text: "\n".join(
        [line for line in text.splitlines() if not line.startswith(f"{name}=")]
        + ([] if value is None else [f"{name}={value}"])
        + [""]
    )


def in_quorum_state(**changes: object) -> Damage:
    """Other values in `quorum-state`; None removes one."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        path = roots[0] / METADATA / "quorum-state"
        values = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))

    return hurt


def bootstrap(*values: bytes) -> Damage:
    """Other records in bootstrap.checkpoint."""
    return lambda roots, rng: put(
        roots[0] / "bootstrap.checkpoint", bytes(build_batch([NewRecord(None, value, 0) for value in values]))
    )


def to_bootstrap(change: Callable[[bytes], bytes]) -> Damage:
    """Other bytes in bootstrap.checkpoint."""
    return lambda roots, rng: put(
        roots[0] / "bootstrap.checkpoint", change((roots[0] / "bootstrap.checkpoint").read_bytes())
    )


def without_metadata(damage: Damage) -> Damage:
    """And the metadata log is empty: Kafka creates a cluster."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        as_directory(roots[0] / METADATA)
        damage(roots, rng)

    return hurt


def sizes(partition: str, suffix: str, size: int, *, is_last: bool, fill: bytes = b"") -> Damage:
    """An index of another size; what is added are zeros, or what `fill` says."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        path = sorted(log_of(roots, partition).glob(f"*{suffix}"))[-1 if is_last else 0]
        path.chmod(0o644)
        data = path.read_bytes()
        path.write_bytes((data + (fill or b"\0") * size)[:size])

    return hurt


def level(value: int) -> bytes:
    return framed("FeatureLevelRecord", name="metadata.version", feature_level=value)


def breaks_root(number: int, way: str) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        root = roots[number]
        if way == "loops":
            root.rename(root.parent / "kept")
            root.symlink_to(root)
        elif way.startswith("is a link"):
            root.rename(root.parent / "kept")
            root.symlink_to(root.parent / ("kept" if way == "is a link" else "nowhere"))
        else:
            shutil.rmtree(root)
            if way == "is a file":
                root.write_text("x")
            elif way == "is empty":
                root.mkdir()

    return hurt


def copies_metadata_as(name: str) -> Damage:
    return lambda roots, rng: shutil.copytree(roots[0] / METADATA, roots[0] / name)


def drops_first_segments(partition: str) -> Damage:
    def hurt(roots: Roots, rng: random.Random) -> None:
        for log in sorted(log_of(roots, partition).glob("*.log"))[:-1]:
            for path in list(log.parent.glob(f"{log.stem}.*")):
                no_file(path)

    return hurt


def reorders(partition: str) -> Damage:
    """Two batches of a segment exchange their places."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        path = sorted(log_of(roots, partition).glob("*.log"))[0]
        batches = [bytes(batch.buffer) for batch in read_batches(path.read_bytes())]
        one = rng.randrange(len(batches) - 1)
        batches[one : one + 2] = reversed(batches[one : one + 2])
        put(path, b"".join(batches))

    return hurt


def unmarked(damage: Damage) -> Damage:
    """And the broker was not stopped in good order."""

    def hurt(roots: Roots, rng: random.Random) -> None:
        for root in roots:
            (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for root in roots:
            put(root / "recovery-point-offset-checkpoint", b"0\n0\n")
        damage(roots, rng)

    return hurt


MARKS = ("", "{}", "x", "[]", '{"version":0}', '{"version":0,"brokerEpoch":-1}', '{"version":0,"brokerEpoch":"x"}',
         '{"version":9,"brokerEpoch":5}', '{"version":0,"brokerEpoch":99999999999999999999}', "{", '{"version":"x"}',
         '{"version":0,"brokerEpoch":1.5}')  # fmt: skip
EPOCHS = (b"", b"0\n", b"0\n0\n", b"0\n1\n", b"0\n1\n0 0\n", b"0\n1\n-1 0\n", b"0\n1\n0 -1\n", b"0\n1\n0 x\n",
          b"1\n0\n",
          b"0\n2\n0 0\n0 5\n", b"0\n2\n5 0\n4 9\n", b"0\n2\n0 0\n9 99999\n", b"0\n1\n7 50\n", b"0\n1\n0 0 0\n",
          b"0\n1\n2147483648 0\n", b"0\n1\n2147483647 0\n", b"0\n2\n0 0\n", b"\xff\xfe", b"0\n1\n0  0\n",
          b"0\r\n1\r\n0 0\r\n", b" 0\n0\n", b"+0\n0\n", b"0\n1\n\n0 0\n")  # fmt: skip
OFFSETS = (b"0\n1\norders 0 -1\n", b"0\n1\norders 0 100000\n", b"0\n1\norders -1 5\n", b"0\n1\norders 0 5 7\n",
           b"0\n2\norders 0 5\norders 0 9\n", b"0\n1\na/b 0 5\n", b"0\n-1\n", b"0\n1\norders 0 9223372036854775808\n",
           b"0\n1\norders 0 77\n", b"0\n1\n\n", b"0", b"\n", b"0\n0", b"0\n1\norders  0 5\n")  # fmt: skip
TOPIC_IDS = (b"", b"version: 0", b"version: 0\ntopic_id: ", b"version: 1\ntopic_id: " + OTHER_ID.encode(),
             b"topic_id: x\nversion: 0\n", b"version:0\ntopic_id:" + OTHER_ID.encode(), b"\n", b"version: 0\n\n",
             b"version: 0\ntopic_id: " + b"A" * 22, b"version: 0\ntopic_id: " + b"A" * 21 + b"Q",
             b"version: 0\ntopic_id: " + b"A" * 40, b"version: -1\ntopic_id: " + OTHER_ID.encode(),
             b"version: 0\ntopic_id: " + OTHER_ID.encode(),
             b"version: 0\ntopic_id: !!!!!!!!!!!!!!!!!!!!!!")  # fmt: skip
NAMES = ("orders-", "-0", "orders--1", "orders-01", "orders-+1", "orders-99999999999", "orders-1.5", "orders 1-0",
         f"orders-1.{UID}-delete", f"orders-1.{UID}-stray", f"orders-1.{UID}-future", "orders-1-delete",
         "orders-1-stray",
         "orders-1-future", "orders-1.x-delete", f".{UID}-delete", f"orders.{UID}-delete", f"orders-x.{UID}-delete",
         f"orders-1{UID}-delete", f"orders-1.{UID}-Delete", "orders-\u0661", ".-1", "..-1", "x" * 240 + "-1",
         f"orders-1.{UID}-delete.{UID}-delete", "orders-1.bak", "__cluster_metadata-1", f"{METADATA}.{UID}-delete",
         "__cluster_metadata", "remote-log-index-cache-0", "_-1", "ord\u00e9rs-1", f"orders-7.{UID}-future",
         f"payments-1.{UID}-delete", f"orders-1.{UID}-stray.{UID}-stray")  # fmt: skip
BASE_NAMES = ("abc", "-0000000000000000001", "00000000000000000001", "1", "99999999999999999999", "9223372036854775807",
              "9223372036854775806", "00000000002147483648", "0000000000000000000x", "+0000000000000000000",
              "00000000000000000030", " 0000000000000000000", "0000000000000000000\u0661")  # fmt: skip
SNAPSHOT_NAMES = ("99999999999999999999", "00000000000000009999", "abc", "-1", "9223372036854775807", "+5", "0",
                  "00000000000000000299", "x\u0661")  # fmt: skip
STATE = {"leaderId": (-2, -1, 0, 7, 2**31), "leaderEpoch": (-1, 0, 900, 2**31 - 2, "5", 1.5), "votedId": (1, 7, -5),
         "appliedOffset": (-1, 10**9, "x"), "clusterId": ("other", 5), "data_version": (0, 1, 2, "0", "x", -1),
         "currentVoters": ([], [{"voterId": 7}], [{"voterId": 1}, {"voterId": 2}], [{}], {}, [{"voterId": "1"}]),
         "more": (1,), "votedDirectoryId": (OTHER_ID, "x")}  # fmt: skip

UNHEARD_OF = framed("FeatureLevelRecord", name="unheard.of", feature_level=3)
BOOTSTRAPS = {
    "with another level": bootstrap(level(29)),
    "with a low level": bootstrap(level(6)),
    "with a high level": bootstrap(level(31)),
    "with two levels": bootstrap(level(29), level(30)),
    "with a wrong and a right level": bootstrap(level(31), level(30)),
    "without a level": bootstrap(framed("NoOpRecord")),
    "with an unknown record": bootstrap(level(30), bytes([1, 99, 0, 0])),
    "with an unknown version": bootstrap(level(30), bytes([1, 20, 9, 0])),
    "with an unknown feature": bootstrap(level(30), UNHEARD_OF),
    "with a transaction": bootstrap(level(30), framed("BeginTransactionRecord")),
    "with a topic twice": bootstrap(level(30), *[framed("TopicRecord", name="a")] * 2),
    **{f"with {words}": to_bootstrap(change) for words, change in BOOTSTRAP_BYTES.items()},
}

IN_BATCHES = {
    **{f"version {magic}": ({16: magic}, False) for magic in (0, 1, 3, 127)},
    **{f"version {magic} and codec {codec}": ({16: magic, 17: codec}, False) for magic in (0, 1) for codec in (0, 3)},
    "a last offset before the first": (dict.fromkeys(range(23, 27), 255), True),
    "a last offset far before the first": ({**dict.fromkeys(range(23, 26), 255), 26: 156}, True),
    "a last offset far away": ({23: 127}, True),
    "no records": ({57: 0, 58: 0, 59: 0, 60: 0}, True),
    "another leader epoch": ({12: 1}, False),
    "a first offset before": ({7: 0}, False),
}

FILE_DAMAGES: dict[str, Damage] = {
    **{
        f"{what} in the {'last' if number else 'first'} batch of orders-1": to_batch(
            "orders-1", number, changes, is_sealed=is_sealed
        )
        for what, (changes, is_sealed) in IN_BATCHES.items()
        for number in (0, -1)
    },
    **{
        f"{name} of root {number} {way}": to_root_file(name, number, way)
        for name in ROOT_FILES
        for number in (0, 1)
        for way in WAYS
    },
    **{f"{name} of the metadata {way}": to_file(METADATA, name, way) for name in METADATA_FILES for way in WAYS},
    **{f"{name} of orders-1 {way}": to_file("orders-1", name, way) for name in LOG_FILES for way in WAYS},
    **{
        f"{'last' if is_last else 'first'} {suffix} of {partition} {way}": to_segment(
            partition, suffix, way, is_last=is_last
        )
        for partition in (METADATA, "orders-1", "payments-0")
        for suffix in (".log", ".index", ".timeindex", ".snapshot")
        for way in WAYS
        if way not in ("is empty", "is zeros")
        for is_last in (False, True)
    },
    **{
        f"first .txnindex of payments-0 {way}": to_segment("payments-0", ".txnindex", way, is_last=False)
        for way in WAYS
    },
    **{
        f"the newest snapshot of the metadata {way}": to_segment(METADATA, ".checkpoint", way, is_last=True)
        for way in WAYS
    },
    **{f"the mark of root 1 is {mark!r}": writes_root(1, ".kafka_cleanshutdown", mark.encode()) for mark in MARKS},
    **{f"epochs of orders-1 {text!r}": writes("orders-1", "leader-epoch-checkpoint", text) for text in EPOCHS},
    **{
        f"epochs of orders-1 {text!r}, unmarked": unmarked(writes("orders-1", "leader-epoch-checkpoint", text))
        for text in EPOCHS
    },
    **{f"epochs of the metadata {text!r}": writes(METADATA, "leader-epoch-checkpoint", text) for text in EPOCHS},
    **{
        f"{name} of root {number} {text!r}": writes_root(number, name, text)
        for name in CHECKPOINTS
        for text in OFFSETS
        for number in (0, 1)
    },
    **{
        f"partition.metadata of orders-1 {text!r}": writes("orders-1", "partition.metadata", text) for text in TOPIC_IDS
    },
    **{
        f"partition.metadata of the metadata {text!r}": writes(METADATA, "partition.metadata", text)
        for text in TOPIC_IDS
    },
    **{f"orders-1 renamed to {name!r}": renames("orders-1", name) for name in NAMES},
    **{f"orders-1 copied to {name!r}": copies("orders-1", name) for name in NAMES if name != "orders-1"},
    **{
        f"orders-1 copied to {name!r} of root 0": copies("orders-1", name, 0)
        for name in (
            "orders-1",
            f"orders-1.{UID}-future",
            f"orders-1.{UID}-delete",
            f"orders-1.{UID}-stray",
            "orders-01",
        )
    },
    **{f"first segment of orders-1 named {name!r}": renames_segment("orders-1", name) for name in BASE_NAMES},
    **{
        f"first segment of orders-1 named {name!r}, unmarked": unmarked(renames_segment("orders-1", name))
        for name in BASE_NAMES
    },
    **{
        f"last segment of orders-1 named {name!r}": renames_segment("orders-1", name, is_last=True)
        for name in BASE_NAMES
    },
    **{
        f"last segment of the metadata named {name!r}": renames_segment(METADATA, name, is_last=True)
        for name in BASE_NAMES
    },
    **{
        f"empty {name}{suffix} in {partition}": writes(partition, f"{name}{suffix}", b"")
        for name in ("abc", "-5", "00000000000000000700", "99999999999999999999")
        for suffix in (
            ".log",
            ".index",
            ".timeindex",
            ".txnindex",
            ".snapshot",
            ".log.swap",
            ".index.swap",
            ".log.cleaned",
            ".log.deleted",
            ".snapshot.deleted",
            ".checkpoint",
        )
        for partition in ("orders-1", METADATA)
    },
    **{f"producer snapshot {name!r}": writes("orders-1", f"{name}.snapshot", b"x") for name in SNAPSHOT_NAMES},
    **{f"empty producer snapshot {name!r}": writes("payments-0", f"{name}.snapshot", b"") for name in SNAPSHOT_NAMES},
    **{
        f"a directory named {name}": makes_directory("orders-1", name)
        for name in (
            "00000000000000000700.log",
            "x.log",
            "00000000000000000700.snapshot",
            "00000000000000000000.txnindex",
            "00000000000000000000.log.deleted",
            "00000000000000000060.log.swap",
            "sub",
            "x.snapshot.deleted",
            "00000000000000000060.log.cleaned",
        )
    },
    **{
        f"{'last' if is_last else 'first'} {suffix} of orders-1 with {size} bytes{' more' * bool(fill)}{words}": wrap(
            sizes("orders-1", suffix, size, is_last=is_last, fill=fill)
        )
        for suffix in (".index", ".timeindex")
        for size in (0, 4, 8, 12, 8_192, 20_000_000)
        for is_last in (False, True)
        for fill in (b"", b"\x7f\xff\xff\xff")
        for words, wrap in (("", lambda damage: damage), (", unmarked", unmarked))
        if size < 10_000 or not fill
    },
    **{
        f"quorum-state {name}={value!r}": in_quorum_state(**{name: value})
        for name, values in STATE.items()
        for value in values
    },
    **{f"quorum-state without {name}": in_quorum_state(**{name: None}) for name in STATE},
    **{
        f"{name}={value!r} in root {number}": in_identity(number, with_value(name, value))
        for number in (0, 1)
        for name, values in (
            ("version", (None, "0", "1", "2", "x", "", " 1", "-1")),
            ("cluster.id", (None, "other", "")),
            ("node.id", (None, "7", "x", "", "1 ", "-1", "+1", "99999999999")),
            ("broker.id", ("1", "7", "x")),
            ("directory.id", (None, OTHER_ID, "", "x", "A" * 22, "A" * 21 + "Q", "A" * 20 + "AB", "-" * 22)),
            ("more", ("x",)),
        )
        for value in values
    },
    **{
        f"meta.properties of root {number} is {text!r}": writes_root(number, "meta.properties", text)
        for number in (0, 1)
        for text in (b"\\u12", b"version=1", b"\xff\xfe", b"=\n", b"version")
    },
    **{f"bootstrap.checkpoint {words}": damage for words, damage in BOOTSTRAPS.items()},
    **{
        f"no metadata, and bootstrap.checkpoint {words}": without_metadata(damage)
        for words, damage in BOOTSTRAPS.items()
    },
    "quorum-state with an impossible leader of an earlier epoch": in_quorum_state(leaderId=-2, leaderEpoch=0),
    **{
        f"root {number} {way}": breaks_root(number, way)
        for number in (0, 1, 2)
        for way in ("is a file", "is missing", "is empty", "loops", "is a link", "is a link that leads nowhere")
    },
    "a second metadata directory": copies_metadata_as("__cluster_metadata-1"),
    "a metadata directory that is deleted": copies_metadata_as(f"{METADATA}.{UID}-delete"),
    "the metadata is a link": lambda roots, rng: as_link(roots[0] / METADATA),
    "orders-1 is a link": lambda roots, rng: as_link(log_of(roots, "orders-1")),
    "the metadata is a file": lambda roots, rng: (no_file(roots[0] / METADATA), (roots[0] / METADATA).write_text("x")),
    "the metadata is empty": lambda roots, rng: as_directory(roots[0] / METADATA),
    "orders-1 is a file": lambda roots, rng: put_in_place(log_of(roots, "orders-1")),
    "orders-1 is empty": lambda roots, rng: as_directory(log_of(roots, "orders-1")),
    "orders-1 without its first segments": drops_first_segments("orders-1"),
    "orders-1 without its first segments, unmarked": unmarked(drops_first_segments("orders-1")),
    "the metadata without its first segments": drops_first_segments(METADATA),
    "batches of orders-1 exchanged": reorders("orders-1"),
    "batches of orders-1 exchanged, unmarked": unmarked(reorders("orders-1")),
    "batches of payments-0 exchanged, unmarked": unmarked(reorders("payments-0")),
    "batches of the metadata exchanged": reorders(METADATA),
}


def put_in_place(path: Path) -> None:
    no_file(path)
    path.write_text("x")
