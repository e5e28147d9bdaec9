"""Hostile journals in a root: whoever reads or recovers it touches nothing outside, and hides nothing in silence.

A home has a log directory with two topics, files beside it, and staged pieces in it. Each case puts a journal there: a
sound one with fields, lines or bytes changed, by name or by content. Readers then show every record, or tell that a
write is unfinished, or raise an error of ours. A recovery succeeds or raises one. Whatever happens, no byte outside the
log directory has changed; where the journal was rejected, no byte inside either. A few journals are as large as one may
be: memory is limited (in `run`).
"""

import os
import random
import resource
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import tidelog
from tests.log.journals import COMMIT, GROUP, LOAD, large, mutated, plausible
from tidelog.errors import CheckpointError, TidelogError
from tidelog.log import LogManager, TopicPartition
from tidelog.log.journal_format import encode
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import JOURNAL_FILE, OLD_JOURNALS, UNFINISHED_WRITE
from tidelog.log.write_journal import PartitionNote, Piece, WriteJournal, read_journal
from tidelog.records import NewRecord, build_batch
from tidelog.records.checksum import crc32c_of
from tidelog.spark.recovery import recover

__all__ = ["a_home", "look_at", "run", "snapshot"]

RECORDS = 4
TOPICS = ("orders", "other", "victim")
_LARGE_SHARE, _PLAUSIBLE_SHARE = 0.005, 0.3
_MOST_GROWN = 600 << 20
Tree = dict[str, bytes]


def a_home(place: Path) -> Path:
    """A directory with a log directory in it, and other things beside and around."""
    home = place / "home"
    (home / "precious").mkdir(parents=True)
    (home / "precious" / "thesis.txt").write_text("do not delete")
    (home / "staged.batches").write_bytes(b"")
    root = home / "backup"
    with LogManager.open(str(root)) as manager:
        for topic in TOPICS:
            log = manager.get_or_create(TopicPartition(topic, 0))
            for number in range(RECORDS):
                log.append(NewRecord(b"k", b"v%d" % number))
    (root / "replication-offset-checkpoint").unlink()
    return home


def fitting(root: Path) -> WriteJournal:
    """A journal of a commit that can be done: its pieces are staged."""
    pieces = []
    for uid in ("a", "b"):
        batch = bytes(build_batch([NewRecord(None, b"new", 1)]))
        piece = Piece("orders", 0, f"orders-0.{uid * 32}-delete", len(batch), 1, crc32c_of(batch), "host")
        os.makedirs(root / piece.directory, exist_ok=True)
        (root / piece.directory / "staged.batches").write_bytes(batch)
        pieces.append(piece)
    place = TopicPartition("orders", 0)
    note = PartitionNote(
        False, end=RECORDS, epoch=0, recovery_point=RECORDS, end_then=RECORDS + 2, pieces=tuple(pieces)
    )
    return replace(COMMIT, topic_ids={"orders": None}, partitions={place: note}, dropped=[])


def snapshot(place: Path, without: str = "nothing") -> Tree:
    """Every file and directory below a place."""
    found: Tree = {}
    for folder, names, files in os.walk(place):
        if without in names and Path(folder) == place:
            names.remove(without)
        found |= {f"{folder}/{name}/": b"" for name in names}
        found |= {f"{folder}/{name}": (Path(folder) / name).read_bytes() for name in files}
    return found


def look_at(root: Path, rng: random.Random) -> str:
    """Read every record. What came of it: `shown`, `told` that some are hidden, or `rejected`."""
    logs = tidelog.open(str(root))
    try:
        told = logs.unfinished_writes
        counts = {}
        for topic in rng.sample(TOPICS, 3):
            if topic not in logs:
                assert told, f"{topic} is not listed, and nothing is said"
                continue
            scan = logs.scan(topic)
            counts[topic] = scan.count()
            assert counts[topic] == sum(1 for part in logs[topic] for _ in part.read())
            assert counts[topic] == RECORDS or scan.notices, f"{counts} of {topic}, and nothing is said"
    except CheckpointError:
        return "rejected"
    return "told" if told else "shown"


def one_case(home: Path, rng: random.Random, counts: Counter[str]) -> None:
    root = home / "backup"
    journal = rng.choice((LOAD, GROUP, COMMIT, fitting(root)))
    chance = rng.random()
    if chance < _LARGE_SHARE:
        content = large(journal, rng)
    elif chance < _PLAUSIBLE_SHARE:
        content = encode(plausible(rng, [*TOPICS, "new"]))
    else:
        content = mutated(journal, rng)
    name = rng.choice((UNFINISHED_WRITE, UNFINISHED_WRITE, UNFINISHED_WRITE, *OLD_JOURNALS))
    if name == UNFINISHED_WRITE:
        (root / name).mkdir()
        (root / name / JOURNAL_FILE).write_bytes(content)
    else:
        (root / name).write_bytes(content)
    outside, inside = snapshot(home, without="backup"), snapshot(root)
    outcome = look_at(root, rng)
    assert snapshot(home) == {**outside, **inside, f"{home}/backup/": b""}, "a reader has changed something"
    counts[outcome] += 1
    try:
        is_valid = read_journal(LocalFileSystem(), str(root)) is not None
    except CheckpointError:
        is_valid = False
    assert is_valid == (outcome != "rejected")
    try:
        recover([str(root)], logs=rng.random() < 0.5)
        counts["recovered"] += 1
    except TidelogError:
        counts["not-recovered"] += 1
    assert snapshot(home, without="backup") == outside, "a recovery has changed something outside"
    assert is_valid or snapshot(root) == inside, "a journal that is not valid was followed"


def run(seed: int, cases: int) -> Counter[str]:
    """Put hostile journals into roots; how often what came of it."""
    counts: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as place:
        template = a_home(Path(place) / "template")
        for case in range(cases):
            rng = random.Random(f"{seed} {case}")
            home = Path(place) / "case" / "home"
            shutil.copytree(template, home)
            try:
                one_case(home, rng, counts)
            except Exception as broken:
                raise AssertionError(f"journals, seed {seed}, case {case}: {broken!r}") from broken
            shutil.rmtree(home)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < _MOST_GROWN, f"journals, seed {seed}: the process has grown by {grown} bytes"
    return counts
