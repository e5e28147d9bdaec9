"""`tidelog dump-log`: the text of kafka-dump-log, of any release from 0.8.2 on."""

import io
import sys
from collections.abc import Sequence
from typing import TextIO, cast

import click

from tidelog.visible import visible_lines

__all__ = ["dump_log"]

_VERSION_OPTION = "--kafka-version"
_FILES = ("--files", "-files")


@click.command(
    "dump-log",
    options_metavar="",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["-h"]},
)
@click.argument("arguments", metavar="[FILES | DIR]... [OPTIONS]", nargs=-1, type=click.UNPROCESSED)
def dump_log(arguments: tuple[str, ...]) -> None:
    """Print Kafka's files as kafka-dump-log prints them, equal to the byte.

    All options of the real tool are taken, and only those: --files, --print-data-log, --deep-iteration,
    --verify-index-only, --index-sanity-check, --max-bytes, --skip-record-metadata, the decoders and the others; --help
    lists them in the tool's own words. Text, reports, usage and exit codes are those of the tool. Of an exception that
    would end it the lines without stack frames are printed, exit code 1. No file is ever written to.

    In a terminal, and only there, characters that it would obey or hide (control, bidirectional, zero-width) are
    escaped: \\x1b, \\u202e. A file or a pipe gets every byte that the tool would print.

    \b
      --kafka-version X   be the tool of release X, 0.8.2 to 4.3; without it, of the newest
      FILES, DIR          the same as --files FILES, and whole directories: every .log, .index, .timeindex,
                          .txnindex, .snapshot and .checkpoint in DIR and below it, in the order of names
    """
    from tidelog.dump import run
    from tidelog.dump.releases import NEWEST

    words, version = _without_version(arguments)
    code = run(
        _with_files(words),
        release=version or NEWEST,
        stdout=_for_eyes(sys.stdout),
        stderr=_for_eyes(sys.stderr),
    )
    raise click.exceptions.Exit(code)


def _for_eyes(stream: TextIO) -> TextIO:
    """The stream itself, or in a terminal one that escapes what is written to it."""
    return cast(TextIO, _Terminal(stream)) if stream.isatty() else stream


class _Terminal(io.TextIOBase):
    """A terminal, which must not obey the data that are printed. Line ends and tabs are mostly those of the tool."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible_lines(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def _without_version(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments that the tool gets, and the release whose tool it is."""
    words, version = list[str](), None
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name != _VERSION_OPTION:
            words.append(word)
        elif equals:
            version = value
        elif left:
            version = left.pop(0)
        else:
            raise click.UsageError(f"{_VERSION_OPTION} wants a release, such as 3.9")
    return words, version


def _with_files(words: list[str]) -> list[str]:
    """Names in front of the options become --files, which the tool knows."""
    if any(word.partition("=")[0] in _FILES for word in words):
        return words
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    return ["--files", ",".join(words[:count]), *words[count:]] if count else words
