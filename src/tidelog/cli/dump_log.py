"""`tidelog dump-log`: the text of kafka-dump-log, of any release from 0.8.2 on."""

import sys
from collections.abc import Sequence

import click

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
        stdout=sys.stdout,
        stderr=sys.stderr,
    )
    raise click.exceptions.Exit(code)


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
