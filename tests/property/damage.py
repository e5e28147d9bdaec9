"""Every bit flipped, every file cut at every byte, the log opened in three ways and asked everything.

    recovered     after a crash, with a recovery point of 0: all that was written is checked
    flushed       after a crash, with the recovery point at the log end: older segments are believed
    clean         after a clean stop: everything is believed

What comes out of a case is one of

    right         every answer is that of the sound log
    cut           every answer is that of a sound log that ends where recovery cut the damaged batch off
    seen          answers are right or errors of tidelog.errors
    harm          some answer is wrong, and nobody can tell

Harm is allowed where Kafka's format has nothing to see it by, and `is_excused` says where that is. Files of a root that
hold offsets (checkpoints) are read by themselves. The case of a number depends on the number alone.

    python -m tests.property.damage --write    makes the tables of docs/compatibility.md, from all cases
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from tests.property.damage_image import (
    DIRECTORY,
    LOG_END,
    SCRIPT,
    Answers,
    Refused,
    answer_to_writing,
    answers_of,
    image_of,
    open_log,
)
from tests.property.damage_places import (
    FIELDS,
    OFFSET_CHECKPOINT,
    ROOT_FILES,
    batch_starts,
    field_at,
    kind_of,
    read_root_file,
    root_image,
)
from tidelog.errors import TidelogError
from tidelog.log.files import join, parent_of
from tidelog.log.names import (
    CLEAN_SHUTDOWN,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.testing.disk import SimulatedFileSystem

RECOVERED, FLUSHED, CLEAN, READ = "recovered", "flushed", "clean", "read"
MODES = (RECOVERED, FLUSHED, CLEAN)
RIGHT, CUT, SEEN, HARM = OUTCOMES = ("right", "cut", "seen", "harm")
ALL_BATCHES = len(SCRIPT)
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
_TABLES = ("<!-- damage -->", "<!-- end of damage -->")
_ACTIVE = f"{11:020}"  # how the names of the last segment begin


class Damage(NamedTuple):
    """One case: a bit of a file flipped, or the file cut before a byte."""

    mode: str
    name: str
    position: int
    bit: int | None  # None: cut

    def __str__(self) -> str:
        what = "cut" if self.bit is None else f"bit {self.bit} flipped"
        return f"{self.mode}: {self.name} {what} at {self.position}"

    @property
    def kind(self) -> str:
        return kind_of(self.name)

    @property
    def field(self) -> str:
        return "cut" if self.bit is None else field_at(disk_of(self.mode), self.name, self.position)


class Verdict(NamedTuple):
    """What came of a case; of harm and errors, the kinds of questions that were answered so."""

    outcome: str
    questions: tuple[str, ...] = ()


@cache
def disk_of(mode: str) -> SimulatedFileSystem:
    """The sound files of a mode."""
    if mode == READ:
        return root_image()
    image = image_of(ALL_BATCHES)
    return image.stopped if mode == CLEAN else image.crashed


def path_of(name: str) -> str:
    return join(parent_of(DIRECTORY) if name in ROOT_FILES else DIRECTORY, name)


@cache
def all_damage() -> tuple[Damage, ...]:
    """Every case."""
    return tuple(_damage_of(READ, ROOT_FILES)) + tuple(
        damage for mode in MODES for damage in _damage_of(mode, disk_of(mode).list(DIRECTORY))
    )


def _damage_of(mode: str, names: Iterable[str]) -> Iterator[Damage]:
    for name in names:
        stat = disk_of(mode).stat(path_of(name))
        assert stat is not None
        for position in range(stat.size):
            yield Damage(mode, name, position, None)
            for bit in range(8):
                yield Damage(mode, name, position, bit)


def damaged_disk(damage: Damage) -> SimulatedFileSystem:
    """The files with the damage done."""
    disk = disk_of(damage.mode).copy()
    file = disk.open_write(path_of(damage.name))
    if damage.bit is None:
        file.resize(damage.position)
    else:
        file.write_at(damage.position, bytes([file.read(damage.position, 1)[0] ^ 1 << damage.bit]))
    return disk


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(damage: Damage) -> Verdict:
    """Open what is damaged, ask everything, compare."""
    disk = damaged_disk(damage)
    if damage.mode == READ:
        return _judge_root_file(disk, damage.name)
    try:
        log = open_log(disk, **_opening(damage.mode, LOG_END))
    except TidelogError as error:
        return Verdict(SEEN, (f"open: {type(error).__name__}",))
    answers = answers_of(log)
    verdict = _judge_answers(damage.mode, answers)
    if any(segment.wrong_index for segment in log.segments):
        log.tick()  # mends the index; nothing may be worse than before
        verdict = _worse(verdict, _judge_answers(damage.mode, answers_of(log)))
    if verdict.outcome in (RIGHT, CUT):
        return _worse(verdict, _judge_answers(damage.mode, answers | answer_to_writing(log)))
    return verdict


def _worse(one: Verdict, other: Verdict) -> Verdict:
    return max(one, other, key=lambda verdict: OUTCOMES.index(verdict.outcome))


def _judge_answers(mode: str, answers: Answers) -> Verdict:
    appends = _LOG_ENDS.get(cast(int, answers["log end",]))  # so many make this log end
    if mode == CLEAN or appends in (None, ALL_BATCHES):
        return _compare(answers, sound_answers(mode, ALL_BATCHES))
    verdict = _compare(answers, sound_answers(mode, appends))
    return Verdict(CUT) if verdict.outcome == RIGHT else verdict


def _opening(mode: str, log_end: int) -> dict[str, Any]:
    if mode == CLEAN:
        return {"clean_shutdown": True}
    return {"recovery_point": log_end if mode == FLUSHED else 0}


_LOG_ENDS = {image_of(appends).log_end: appends for appends in range(ALL_BATCHES + 1)}


@cache
def sound_answers(mode: str, appends: int) -> Answers:
    """What the log answers in which nothing is damaged, after so many appends."""
    image = image_of(appends)
    disk = image.stopped if mode == CLEAN else image.crashed
    log = open_log(disk.copy(), **_opening(mode, image.log_end))
    return answers_of(log) | answer_to_writing(log)


def _compare(answers: Answers, sound: Answers) -> Verdict:
    wrong = {question: answer for question, answer in answers.items() if answer != sound[question]}
    harmful = {str(question[0]) for question, answer in wrong.items() if not isinstance(answer, Refused)}
    if harmful:
        return Verdict(HARM, tuple(sorted(harmful)))
    errors = {f"{question[0]}: {answer.error}" for question, answer in wrong.items() if isinstance(answer, Refused)}
    return Verdict(SEEN, tuple(sorted(errors))) if errors else Verdict(RIGHT)


def _judge_root_file(disk: SimulatedFileSystem, name: str) -> Verdict:
    sound = read_root_file(root_image(), name)
    try:
        found = read_root_file(disk, name)
    except TidelogError as error:
        return Verdict(SEEN, (f"read: {type(error).__name__}",))
    return Verdict(RIGHT) if found == sound else Verdict(HARM, ("what it says",))


# -- what the format cannot see ----------------------------------------------------------------------------------------

_UNCHECKED_FIELDS = ("base offset", "leader epoch", "magic")  # of a batch, with its length: bytes 0 to 16
_HAS_NO_CHECKSUM = (LEADER_EPOCH_CHECKPOINT, OFFSET_CHECKPOINT, CLEAN_SHUTDOWN)


def is_excused(damage: Damage) -> bool:
    """Whether harm by this damage is what Kafka's format cannot see."""
    if damage.kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, PARTITION_METADATA):
        return False  # an index is checked against the log, a snapshot has a checksum, the topic id is known
    if damage.kind in _HAS_NO_CHECKSUM:
        return True
    if damage.mode == CLEAN or (damage.mode == FLUSHED and not damage.name.startswith(_ACTIVE)):
        return True
    return damage.kind == LOG_SUFFIX and (damage.field in _UNCHECKED_FIELDS or is_batch_end(damage))


def is_batch_end(damage: Damage) -> bool:
    """Whether a segment is cut between two batches, so that what is left is sound."""
    return damage.bit is None and damage.position in batch_starts(disk_of(damage.mode), damage.name)


class Unexcused(AssertionError):
    """Damage did harm that the format could have seen, or raised an error that is not ours."""


def judged(damage: Damage) -> Verdict:
    """The verdict on a case, which is harm only where it may be."""
    try:
        verdict = judge(damage)
    except Exception as error:
        raise Unexcused(f"{damage!r}: {type(error).__name__}: {error}") from error
    if verdict.outcome == HARM and not is_excused(damage):
        raise Unexcused(f"{damage!r}: {', '.join(verdict.questions)} wrong")
    if verdict.outcome != RIGHT and damage.kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
        raise Unexcused(f"{damage!r}: {verdict}, though the log is sound")
    return verdict


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on; how many had which outcome."""
    return Counter(f"damage-{judged(damage).outcome}" for damage in all_damage()[seed : seed + cases])


# -- the table ---------------------------------------------------------------------------------------------------------

Row = tuple[str, str]  # kind and field


class Tally:
    """Outcomes by kind, field and mode, and which answers were wrong."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Row, str, str]] = Counter()
        self.wrong: defaultdict[Row, set[str]] = defaultdict(set)

    def add(self, damage: Damage, verdict: Verdict) -> None:
        row = (damage.kind, damage.field)
        self.counts[row, damage.mode, verdict.outcome] += 1
        if verdict.outcome == HARM:
            self.wrong[row] |= set(verdict.questions)

    def merge(self, other: "Tally") -> None:
        self.counts += other.counts
        for row, questions in other.wrong.items():
            self.wrong[row] |= questions

    def lines(self) -> Iterator[str]:
        """Two tables in Markdown: all outcomes by kind of file, and every field whose damage can do harm."""
        yield "| File | Opened | Cases | Right | Cut | Seen | Harm |"
        yield "|---|---|--:|--:|--:|--:|--:|"
        for kind, mode in sorted({(row[0], mode) for row, mode, _ in self.counts}, key=_file_order):
            counts = [self._count(mode, outcome, kind=kind) for outcome in OUTCOMES]
            yield f"| `{kind}` | {mode} | {_cells(sum(counts), *counts)} |"
        yield ""
        yield "| File | Field | Recovered | Flushed | Clean | Wrong answers |"
        yield "|---|---|--:|--:|--:|---|"
        for kind, field in sorted(self.wrong, key=_file_order):
            modes = MODES if self._count(RECOVERED, kind=kind) else (READ,) * len(MODES)
            cells = " | ".join(self._harm(kind, field, mode) for mode in modes)
            yield f"| `{kind}` | {field} | {cells} | {', '.join(sorted(self.wrong[kind, field]))} |"

    def _harm(self, kind: str, field: str, mode: str) -> str:
        total = self._count(mode, kind=kind, field=field)
        return f"{self._count(mode, HARM, kind=kind, field=field):,} of {total:,}"

    def _count(self, mode: str, outcome: str | None = None, *, kind: str, field: str | None = None) -> int:
        return sum(
            count
            for (row, its_mode, its_outcome), count in self.counts.items()
            if row[0] == kind and field in (None, row[1]) and its_mode == mode and outcome in (None, its_outcome)
        )


def _cells(*numbers: int) -> str:
    return " | ".join(f"{number:,}" for number in numbers)


def _file_order(key: tuple[str, str]) -> tuple[int, int]:
    """By kind of file as the format pages have them, then by mode or by the place of the field."""
    names = [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT]
    names += [PARTITION_METADATA, OFFSET_CHECKPOINT, CLEAN_SHUTDOWN]
    return names.index(key[0]), [*MODES, READ, *FIELDS].index(key[1])


def tally_of(first: int, cases: int) -> Tally:
    tally = Tally()
    for damage in all_damage()[first : first + cases]:
        tally.add(damage, judged(damage))
    return tally


@click.command()
@click.option("--jobs", default=2, show_default=True, help="Processes at a time.")
@click.option("--write", is_flag=True, help="Put the tables into docs/compatibility.md.")
def main(jobs: int, write: bool) -> None:
    """Judge every case and print the tables of docs/compatibility.md."""
    tally, step = Tally(), 500
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(tally_of, range(0, len(all_damage()), step), repeat(step)):
            tally.merge(part)
    tables = "\n".join(tally.lines())
    click.echo(tables)
    if write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(_TABLES[0])
        behind = rest.partition(_TABLES[1])[2]
        PAGE.write_text(f"{before}{_TABLES[0]}\n{tables}\n{_TABLES[1]}{behind}", encoding="utf-8")


if __name__ == "__main__":
    main()
