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

    python -m tests.property.damage    the table of docs/compatibility.md, from all cases
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import click

from tests.property.damage_image import (
    DIRECTORY,
    LOG_END,
    SCRIPT,
    Answers,
    Refused,
    answers_of,
    image_of,
    open_log,
)
from tests.property.damage_places import ROOT_FILES, field_at, kind_of, read_root_file, root_image
from tidelog.errors import TidelogError
from tidelog.log.files import join, parent_of
from tidelog.log.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.testing.disk import SimulatedFileSystem

RECOVERED, FLUSHED, CLEAN, READ = "recovered", "flushed", "clean", "read"
MODES = (RECOVERED, FLUSHED, CLEAN)
RIGHT, CUT, SEEN, HARM = OUTCOMES = ("right", "cut", "seen", "harm")
ALL_BATCHES = len(SCRIPT)


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
    answers = answers_of(log, writes=False)
    verdict = _judge_answers(damage.mode, answers)
    log.tick()  # what a reader found wrong with an index is mended now, and nothing may be worse than before
    return max(verdict, _judge_answers(damage.mode, answers_of(log)), key=lambda verdict: OUTCOMES.index(verdict[0]))


def _judge_answers(mode: str, answers: Answers) -> Verdict:
    appends = _LOG_ENDS.get(log_end_of(answers))  # how many appends make this log end; None if no number does
    if mode == CLEAN or appends in (None, ALL_BATCHES):
        return _compare(answers, sound_answers(mode, ALL_BATCHES))
    verdict = _compare(answers, sound_answers(mode, appends))
    return Verdict(CUT) if verdict.outcome == RIGHT else verdict


def log_end_of(answers: Answers) -> int:
    log_end = answers["log end",]
    assert isinstance(log_end, int)
    return log_end


def _opening(mode: str, log_end: int) -> dict[str, int]:
    return {RECOVERED: {}, FLUSHED: {"recovery_point": log_end}, CLEAN: {"clean_shutdown": True}}[mode]


_LOG_ENDS = {image_of(appends).log_end: appends for appends in range(ALL_BATCHES + 1)}


@cache
def sound_answers(mode: str, appends: int) -> Answers:
    """What the log answers in which nothing is damaged, after so many appends."""
    image = image_of(appends)
    disk = image.stopped if mode == CLEAN else image.crashed
    return answers_of(open_log(disk.copy(), **_opening(mode, image.log_end)))


def _compare(answers: Answers, sound: Answers) -> Verdict:
    wrong = {question for question, answer in answers.items() if answer != sound[question]}
    if not wrong:
        return Verdict(RIGHT)
    harmful = {str(question[0]) for question in wrong if not isinstance(answers[question], Refused)}
    if harmful:
        return Verdict(HARM, tuple(sorted(harmful)))
    return Verdict(SEEN, tuple(sorted({f"{question[0]}: {answers[question].error}" for question in wrong})))  # type: ignore[attr-defined]


def _judge_root_file(disk: SimulatedFileSystem, name: str) -> Verdict:
    sound = read_root_file(root_image(), name)
    try:
        found = read_root_file(disk, name)
    except TidelogError as error:
        return Verdict(SEEN, (f"read: {type(error).__name__}",))
    return Verdict(RIGHT) if found == sound else Verdict(HARM, ("entries",))
