"""Damage to the directories of a broker: every kind of file, in every way that disks and people have.

damage(roots, random.Random(5))       what was done, in words
"""

import random
import re
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.errors import CorruptionError
from tidelog.protocol import message
from tidelog.records import NewRecord, RecordBatch, build_batch, read_batches

METADATA = "__cluster_metadata-0"
UID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "OimrddjSTw20XAh5VnF0_A"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)  # fmt: skip

RECORDS: Sequence[tuple[str, dict[str, object]]] = (
    ("NoOpRecord", {}),
    ("FeatureLevelRecord", {"name": "group.version", "feature_level": 1}),
    ("FeatureLevelRecord", {"name": "group.version", "feature_level": 9}),
    ("FeatureLevelRecord", {"name": "unheard.of", "feature_level": 1}),
    ("FeatureLevelRecord", {"name": "metadata.version", "feature_level": 31}),
    ("ConfigRecord", {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": "60000"}),
    ("ConfigRecord", {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": "long"}),
    ("ConfigRecord", {"resource_type": 2, "resource_name": "orders", "name": "segment.bytes", "value": "9999"}),
    ("ConfigRecord", {"resource_type": 2, "resource_name": "orders", "name": "unheard.of", "value": "x"}),
    ("ConfigRecord", {"resource_type": 2, "resource_name": "nowhere", "name": "cleanup.policy", "value": "keep"}),
    ("TopicRecord", {"name": "orders", "topic_id": uuid.UUID(int=77)}),
    ("TopicRecord", {"name": "another", "topic_id": uuid.UUID(int=78)}),
    ("RemoveTopicRecord", {"topic_id": uuid.UUID(int=79)}),
    ("UnregisterBrokerRecord", {"broker_id": 77, "broker_epoch": 5}),
    ("FenceBrokerRecord", {"id": 1, "epoch": 999_999}),
    ("BeginTransactionRecord", {}),
    ("EndTransactionRecord", {}),
    ("RemoveAccessControlEntryRecord", {"id": uuid.UUID(int=80)}),
    ("ProducerIdsRecord", {"broker_id": 1, "broker_epoch": 0, "next_producer_id": 0}),
)

Roots = Sequence[Path]


def damage(roots: Roots, rng: random.Random) -> str:
    """Do one thing to the directories, now and then two."""
    return " and ".join(_one(roots, rng) for _ in range(rng.choice((1, 1, 1, 2))))


def damage_metadata(roots: Roots, rng: random.Random) -> str:
    """Do one thing to a directory that holds the metadata log alone."""
    way = rng.choice((_files_of_metadata, _files_of_metadata, _files_of_root, _identity, _record, _lose_metadata))
    return way(roots, rng)


def _one(roots: Roots, rng: random.Random) -> str:
    ways = (_metadata_file, _root_file, _log_file, _directory, _identity, _record)
    choose = rng.choices(ways, (10, 6, 8, 6, 4, 3))[0]
    return choose(roots, rng)


def _record(roots: Roots, rng: random.Random) -> str:
    """A record at the end of the metadata log, as a later release or a hand may have written it."""
    logs = sorted((roots[0] / METADATA).glob("*.log")) if (roots[0] / METADATA).is_dir() else []
    batches = [batch for path in logs[-1:] for batch in _whole_batches(path)]
    if not batches:
        return _directory(roots, rng)
    kind, fields = rng.choice(RECORDS)
    schema = message(kind)
    assert schema.api_key is not None
    value = bytes([1, schema.api_key, 0]) + schema.write(schema.new(**fields), 0)
    place = {"base_offset": batches[-1].next_offset, "partition_leader_epoch": batches[-1].partition_leader_epoch}
    logs[-1].write_bytes(logs[-1].read_bytes() + build_batch([NewRecord(None, value, 0)], **place))
    return f"{kind} {fields} added to the metadata log"


def _whole_batches(path: Path) -> list[RecordBatch]:
    try:
        return [batch for batch in read_batches(path.read_bytes()) if isinstance(batch, RecordBatch)]
    except CorruptionError:
        return []


# -- files -------------------------------------------------------------------------------------------------------------


def _files_of_metadata(roots: Roots, rng: random.Random) -> str:
    return _hurt([path for path in sorted((roots[0] / METADATA).iterdir()) if path.is_file()], roots, rng)


def _files_of_root(roots: Roots, rng: random.Random) -> str:
    return _hurt([roots[0] / name for name in ("bootstrap.checkpoint", "meta.properties")], roots, rng)


def _metadata_file(roots: Roots, rng: random.Random) -> str:
    folder = roots[0] / METADATA
    suffix = rng.choice((".checkpoint", ".checkpoint", ".log", ".log", "", ".index", ".timeindex", ".snapshot"))
    files = [path for path in sorted(folder.iterdir()) if path.suffix == suffix] if folder.is_dir() else []
    return _hurt(files, roots, rng, newest=suffix in (".checkpoint", ".log"))


def _root_file(roots: Roots, rng: random.Random) -> str:
    names = rng.choice((CHECKPOINTS, (".kafka_cleanshutdown",), ("bootstrap.checkpoint",), ("meta.properties",)))
    return _hurt([root / name for root in roots for name in names if (root / name).is_file()], roots, rng)


def _log_file(roots: Roots, rng: random.Random) -> str:
    suffixes = (".log", ".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "", ".metadata")
    suffix = rng.choice(suffixes)
    folders = rng.sample(logs_in(roots), k=min(4, len(logs_in(roots))))
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix == suffix]
    return _hurt([path for path in files if path.is_file()], roots, rng)


def logs_in(roots: Roots) -> list[Path]:
    """The partition directories."""
    return [path for root in roots for path in sorted(root.iterdir()) if path.is_dir() and path.name != METADATA]


def _hurt(files: Sequence[Path], roots: Roots, rng: random.Random, *, newest: bool = False) -> str:
    if not files:
        return _directory(roots, rng)
    path = files[-1] if newest and rng.random() < 0.6 else rng.choice(files)
    ways = [_cut, _cut, _flip, _flip, _zero, _remove, _append, _scramble, _exchange, _rewrite]
    if path.suffix in (".checkpoint", ".log"):
        ways += [_cut_between_batches, _cut_between_batches, _repeat_a_batch]
    way = rng.choice(ways)
    path.chmod(0o644)
    return f"{path.parent.name}/{path.name}: {way(path, files, rng)}"


def _cut(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    data = path.read_bytes()
    size = rng.choice((0, len(data) // 2, max(len(data) - rng.randrange(1, 20), 0), rng.randrange(len(data) + 1)))
    path.write_bytes(data[:size])
    return f"cut to {size} of {len(data)}"


def _batches(path: Path) -> list[bytes]:
    try:
        return [bytes(batch.buffer) for batch in read_batches(path.read_bytes())]
    except CorruptionError:
        return []  # it was damaged before


def _cut_between_batches(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    batches = _batches(path)
    kept = rng.randrange(len(batches) + 1)
    path.write_bytes(b"".join(batches[:kept]))
    if path.suffix == ".checkpoint" and rng.random() < 0.5:  # and nothing of the log is there to make up for it
        for log in path.parent.glob("*.log"):
            log.unlink()
    return f"cut to {kept} of {len(batches)} batches, {len(list(path.parent.glob('*.log')))} logs beside it"


def _repeat_a_batch(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    batches = _batches(path)
    if not batches:
        return _remove(path, files, rng)
    number, at = rng.randrange(len(batches)), rng.randrange(len(batches) + 1)
    path.write_bytes(b"".join([*batches[:at], batches[number], *batches[at:]]))
    return f"batch {number} put in before batch {at} of {len(batches)}"


def _flip(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return _append(path, files, rng)
    near = rng.choice((len(data), 80, 400))  # of the beginning: there are the headers
    at, bit = rng.randrange(min(near, len(data))), rng.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at} flipped"


def _zero(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    start = rng.choice((0, rng.randrange(len(data) + 1)))
    end = min(len(data), start + rng.choice((8, 64, 512, len(data))))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"bytes {start} to {end} zeroed"


def _remove(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    path.unlink()
    return "removed"


def _append(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    more = rng.choice((bytes(100), b"\n", b"x", rng.randbytes(30), path.read_bytes()[:200]))
    path.write_bytes(path.read_bytes() + more)
    return f"{more[:8]!r}... appended, {len(more)} bytes"


def _scramble(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    size = min(rng.randrange(1, 40), len(data) - start)
    data[start : start + size] = rng.randbytes(size)
    path.write_bytes(data)
    return f"{size} bytes at {start} are random"


def _exchange(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    other = rng.choice(files)
    other.chmod(0o644)
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)
    return f"exchanged with {other.parent.name}/{other.name}"


def _rewrite(path: Path, files: Sequence[Path], rng: random.Random) -> str:
    """What a person, or another program, might have put there."""
    texts: dict[str, tuple[bytes, ...]] = {
        "quorum-state": (
            b"{}", b"[]", b'{"data_version":0}', b'{"leaderId":1,"leaderEpoch":900,"votedId":-1,"data_version":1}',
            b'{"clusterId":"","leaderId":1,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,"currentVoters":[],'
            b'"data_version":0}',
        ),
        "partition.metadata": (
            f"version: 0\ntopic_id: {OTHER_ID}".encode(), b"version: 0\n", b"version: 7\ntopic_id: abc",
            b"version: x\ntopic_id: abc", f"version: 0\ntopic_id: {'A' * 22}".encode(),
        ),
        "leader-epoch-checkpoint": (
            b"0\n0\n", b"0\n1\n0 0\n", b"1\n1\n0 0\n", b"0\n2\n0 0\n40 50\n", b"0\n2\n5 9\n4 8\n",
        ),
    }  # fmt: skip
    default = (b"", b"xx", b"0\n0\n", b"0\n1\norders 1 70\n", b"0\n1\norders 1 100000\n", b"0\n2\norders 1 7\n")
    text = rng.choice(texts.get(path.name, default))
    path.write_bytes(text)
    return f"is now {text!r}"


# -- directories -------------------------------------------------------------------------------------------------------


def _directory(roots: Roots, rng: random.Random) -> str:
    way = rng.choice((_drop, _move, _copy, _rename, _mark, _strange, _strange_file, _take_id, _lose_metadata, _link))
    return way(roots, rng)


def _pick(roots: Roots, rng: random.Random) -> Path:
    return rng.choice(logs_in(roots))


def _drop(roots: Roots, rng: random.Random) -> str:
    path = _pick(roots, rng)
    shutil.rmtree(path)
    return f"{path.name} removed"


def _move(roots: Roots, rng: random.Random) -> str:
    path, root = _pick(roots, rng), rng.choice(roots)
    if not (root / path.name).exists():
        path.rename(root / path.name)
    return f"{path.name} moved from {path.parent.name} to {root.name}"


def _copy(roots: Roots, rng: random.Random) -> str:
    path, root = _pick(roots, rng), rng.choice(roots)
    if rng.random() < 0.1:
        path = roots[0] / METADATA
    name = path.name if rng.random() < 0.6 or path.name == METADATA else f"{path.name}.{UID}-future"
    if path.is_dir() and not (root / name).exists():
        shutil.copytree(path, root / name)
    return f"{path.parent.name}/{path.name} copied to {root.name}/{name}"


def _rename(roots: Roots, rng: random.Random) -> str:
    path = _pick(roots, rng)
    topic, _, number = path.name.rpartition("-")
    name = rng.choice((f"{topic}-{rng.randrange(6)}", f"other-{number}", f"payments-{number}", f"{topic}-x", topic))
    if name and not (path.parent / name).exists():
        path.rename(path.parent / name)
    return f"{path.name} renamed to {name}"


def _mark(roots: Roots, rng: random.Random) -> str:
    path = _pick(roots, rng)
    if "." in path.name:
        return _drop(roots, rng)
    name = f"{path.name}{rng.choice((f'.{UID}-delete', f'.{UID}-future', f'.{UID}-stray', '-delete', '.deleted'))}"
    path.rename(path.parent / name)
    return f"{path.name} renamed to {name}"


def _strange(roots: Roots, rng: random.Random) -> str:
    root = rng.choice(roots)
    name = rng.choice(("lost+found", ".snapshot", "new-0", "new-12", "backup", "orders", "remote-log-index-cache"))
    (root / name).mkdir(exist_ok=True)
    return f"directory {root.name}/{name} made"


def _strange_file(roots: Roots, rng: random.Random) -> str:
    folder = rng.choice((rng.choice(roots), _pick(roots, rng), roots[0] / METADATA))
    names = ("notes.txt", "abc.log", "00000000000000000009.log", "abc.snapshot", "x.index", "orders-9", ".lock",
             "00000000000000000060.log.swap", "00000000000000000060.log.deleted", "00000000000000000060.log.cleaned",
             "00000000000000000700-0000000002.checkpoint", "00000000000000000700-0000000002.checkpoint.part",
             "notes.checkpoint", "a-copy-of-the-snapshot-of-monday.checkpoint.part", "old.checkpoint.deleted",
             "99999999999999999999-0000000002.checkpoint",
             )  # fmt: skip
    name = rng.choice(names)
    if folder.is_dir() and not (folder / name).exists():
        (folder / name).write_bytes(rng.choice((b"", b"hello\n", bytes(100))))
    return f"file {folder.name}/{name} written"


def _link(roots: Roots, rng: random.Random) -> str:
    path = _pick(roots, rng)
    if rng.random() < 0.5:
        shutil.rmtree(path)
    else:
        path.rename(path.parent.parent / f"elsewhere-{path.name}")
    path.symlink_to(path.parent.parent / f"elsewhere-{path.name}")
    return f"{path.name} is a link that leads {'elsewhere' if path.exists() else 'nowhere'}"


def _take_id(roots: Roots, rng: random.Random) -> str:
    path, other = _pick(roots, rng), _pick(roots, rng)
    if (other / "partition.metadata").is_file():
        (path / "partition.metadata").write_bytes((other / "partition.metadata").read_bytes())
    return f"{path.name} has the id of {other.name}"


def _lose_metadata(roots: Roots, rng: random.Random) -> str:
    """Files of the metadata log that belong together, as a copy that was cut short lacks them."""
    folder = roots[0] / METADATA
    if not folder.is_dir():
        return "nothing"
    snapshots, logs = sorted(folder.glob("*.checkpoint")), sorted(folder.glob("*.log"))
    lost = rng.choice(
        (snapshots, logs, snapshots + logs, logs[:-1] + snapshots[:-1], logs[:2], logs[:2] + snapshots, logs[-2:],
         snapshots[-2:], logs[1:2] + snapshots[1:])
    )  # fmt: skip
    for path in lost:
        path.unlink()
    return f"{len(lost)} files of the metadata removed: {', '.join(path.name for path in lost)}"


# -- identities --------------------------------------------------------------------------------------------------------


def _identity(roots: Roots, rng: random.Random) -> str:
    root = rng.choice(roots)
    path = root / "meta.properties"
    if not path.is_file():
        return "nothing"
    changes: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("another node", lambda text: re.sub("node.id=[0-9]+", "node.id=7", text)),
        ("another cluster", lambda text: text.replace("cluster.id=", "cluster.id=X")),
        ("version 0", lambda text: text.replace("version=1", "version=0")),
        ("version 2", lambda text: text.replace("version=1", "version=2")),
        ("no directory id", lambda text: _without(text, "directory.id")),
        ("another directory id", lambda text: f"{_without(text, 'directory.id')}\ndirectory.id={OTHER_ID}\n"),
        ("a bad directory id", lambda text: f"{_without(text, 'directory.id')}\ndirectory.id=abc\n"),
        ("a reserved directory id", lambda text: f"{_without(text, 'directory.id')}\ndirectory.id={'A' * 21}Q\n"),
        ("no cluster", lambda text: _without(text, "cluster.id")),
        ("no node", lambda text: _without(text, "node.id")),
        ("that of another root", lambda text: (rng.choice(roots) / "meta.properties").read_text()),
        ("old names", lambda text: text.replace("version=1", "version=0").replace("node.id", "broker.id")),
    )
    what, change = rng.choice(changes)
    path.write_text(change(path.read_text(encoding="iso-8859-1")), encoding="iso-8859-1")
    return f"meta.properties of {root.name}: {what}"


def _without(text: str, name: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(name))
