"""The options of the tool, release by release, and the command line parsed by the rules of its option library.

The library (joptsimple) takes `--option value`, `--option=value` and even `-option`, passes over words that are no
options, and up to 0.10.2 lets an option be abbreviated as long as it stays the only one that begins so. A value is
looked at when it is asked for: a wrong `--max-bytes` is no error before a `.log` is dumped.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_text import parse_int
from tidelog.dump.releases import Release, Version

__all__ = ["DECODER_OPTIONS", "CommandLine", "Option", "options_of", "parse"]

# In the order in which the tool asks for them; the first one given wins.
DECODER_OPTIONS = (
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "share-group-state-decoder",
)

OLD_DECODER = "kafka.serializer.StringDecoder"
NEW_DECODER = "org.apache.kafka.tools.api.StringDecoder"


class Option(NamedTuple):
    """One option: its name, what it says about itself, and the value it takes."""

    name: str
    text: str
    value: Literal["none", "required", "optional"] = "none"
    value_type: str = "String"
    value_name: str = ""
    default: str = ""


# Since when an option is there.
_SINCE: dict[str, Version] = {
    "offsets-decoder": (0, 9, 0, 1),
    "index-sanity-check": (0, 10, 0, 0),
    "transaction-log-decoder": (0, 11),
    "help": (1, 0),
    "version": (2, 3),
    "cluster-metadata-decoder": (2, 8),
    "skip-record-metadata": (2, 8),
    "max-bytes": (3, 3),
    "remote-log-metadata-decoder": (3, 9),
    "share-group-state-decoder": (4, 0),
}


def options_of(release: Release) -> tuple[Option, ...]:
    """The options that a release knows, in the order of their names."""
    known = (option for option in _all_options(release) if release.version >= _SINCE.get(option.name, ()))
    return tuple(sorted(known))


def _all_options(release: Release) -> list[Option]:
    set_ = "If set" if release.is_at_least(3, 9) else "if set"
    dot = "." if release.is_at_least(0, 10, 1) else ""
    the = "the " if release.is_at_least(0, 11) else ""
    printing = " Automatically set if any decoder option is specified." if dot else ""
    deep = " Automatically set if print-data-log is enabled." if release.is_at_least(1, 1) else ""
    return [
        Option("print-data-log", f"{set_}, printing the messages content when dumping data logs{dot}{printing}"),
        Option("verify-index-only", f"{set_}, just verify the index log without printing its content{dot}"),
        Option(
            "index-sanity-check",
            f"{set_}, just checks the index sanity without printing its content. This is the same check that is "
            "executed on broker startup to determine if an index needs rebuilding or not.",
        ),
        Option(
            "files",
            f"REQUIRED: The comma separated list of data and index log files to be dumped{dot}",
            "required",
            value_name="file1, file2, ...",
        ),
        Option("max-message-size", "Size of largest message.", "required", "Integer", "size", "5242880"),
        Option(
            "max-bytes",
            "Limit the amount of total batches read in bytes avoiding reading the whole .log file(s).",
            "required",
            "Integer",
            "size",
            "2147483647",
        ),
        Option("deep-iteration", f"{set_}, uses deep instead of shallow iteration{dot}{deep}"),
        _decoder_class("value-decoder-class", "messages", set_, release),
        _decoder_class("key-decoder-class", "keys", set_, release),
        Option("skip-record-metadata", _skip_text(release)),
        *_decoder_options(set_, the, dot),
        Option("help", "Print usage information."),
        Option("version", "Display Kafka version."),
    ]


def _decoder_class(name: str, what: str, set_: str, release: Release) -> Option:
    default = NEW_DECODER if release.is_at_least(3, 8) else OLD_DECODER
    interface = default.replace("StringDecoder", "Decoder")
    return Option(
        name,
        f"{set_}, used to deserialize the {what}. This class should implement {interface} trait. Custom jar should "
        "be available in kafka/libs directory.",
        "optional",
        default=default,
    )


def _skip_text(release: Release) -> str:
    if release.is_at_least(4, 2):
        return "Skip metadata when printing records. This flag also skips control records."
    return f"{'W' if release.is_at_least(3, 9) else 'w'}hether to skip printing metadata for each record."


def _decoder_options(set_: str, the: str, dot: str) -> list[Option]:
    start = f"{set_}, log data will be parsed as"
    return [
        Option("offsets-decoder", f"{start} offset data from {the}__consumer_offsets topic{dot}"),
        Option("transaction-log-decoder", f"{start} transaction metadata from the __transaction_state topic."),
        Option("cluster-metadata-decoder", f"{start} cluster metadata records."),
        Option(
            "remote-log-metadata-decoder",
            f"{start} TopicBasedRemoteLogMetadataManager (RLMM) metadata records. Instead, the value-decoder-class "
            "option can be used if a custom RLMM implementation is configured.",
        ),
        Option("share-group-state-decoder", f"{start} share group state data from the __share_group_state topic."),
    ]


# -- parsing -------------------------------------------------------------------------------------------------------


class CommandLine:
    """The options that were given, with their values."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._options = {option.name: option for option in options_of(release)}
        self._values: dict[str, list[str]] = {}

    def add(self, option: Option, *values: str) -> None:
        self._values.setdefault(option.name, []).extend(values)

    def has(self, name: str) -> bool:
        """Whether the option was given, with or without a value."""
        return name in self._values

    def value(self, name: str) -> str:
        """The value of an option, or its default."""
        values = self._values.get(name, [])
        if len(values) > 1:
            raise JavaError(
                "joptsimple.MultipleArgumentsForOptionException",
                f"Found multiple arguments for option {_quoted_list(name, self._release)}, but you asked for only one",
            )
        return values[0] if values else self._options[name].default

    def number(self, name: str) -> int:
        """The value of an option that takes a number of 32 bits."""
        text = self.value(name)
        try:
            return parse_int(text)
        except JavaError as error:
            raise _cannot_convert(name, text, error, self._release) from None


def parse(words: Sequence[str], release: Release) -> CommandLine:
    """Read a command line; what the library throws at a wrong one is a JavaError."""
    line = CommandLine(release)
    options = {option.name: option for option in options_of(release)}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not _looks_like_option(word):
            continue
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        option = _find(name, options, release)
        if option is None and not word.startswith("--"):
            _take_cluster(line, word[1:], options, left, release)
            continue
        if option is None:
            raise _unrecognized(name, release)
        takes_empty = release.is_at_least(1, 0)  # `--files=` is a value since the library of 1.0
        _take(line, option, value if value or (equals and takes_empty) else None, left, release)
    return line


def _looks_like_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _find(name: str, options: dict[str, Option], release: Release) -> Option | None:
    if name in options:
        return options[name]
    if release.is_at_least(0, 11) or not name:
        return None
    candidates = [option for option in options.values() if option.name.startswith(name)]
    return candidates[0] if len(candidates) == 1 else None


def _take_cluster(
    line: CommandLine, letters: str, options: dict[str, Option], left: list[str], release: Release
) -> None:
    """`-pd` is two options of one letter, which exist as abbreviations only. Behind one with a value it stands."""
    found: list[tuple[Option, str | None]] = []
    for index, letter in enumerate(letters):
        option = _find(letter, options, release)
        if option is None:
            raise _unrecognized(letter, release)
        if option.value != "none" and index and not release.is_at_least(0, 10):
            raise JavaError(
                "joptsimple.IllegalOptionClusterException", f"Option cluster containing '{letter}' is illegal"
            )
        if option.value != "none":
            found.append((option, letters[index + 1 :] or None))
            break
        found.append((option, None))
    for option, value in found:
        _take(line, option, value, left, release)


def _take(line: CommandLine, option: Option, value: str | None, left: list[str], release: Release) -> None:
    if option.value == "none":
        line.add(option)
    elif value is not None:
        line.add(option, value)
    elif option.value == "required":
        if not left:
            raise JavaError(
                "joptsimple.OptionMissingRequiredArgumentException",
                f"Option {_quoted_list(option.name, release)} requires an argument",
            )
        line.add(option, left.pop(0))
    elif left and not _looks_like_option(left[0]):
        line.add(option, left.pop(0))
    else:
        line.add(option)


def _unrecognized(name: str, release: Release) -> JavaError:
    shown = name if release.is_at_least(0, 10) else f"'{name}'"
    return JavaError("joptsimple.UnrecognizedOptionException", f"{shown} is not a recognized option")


def _quoted_list(name: str, release: Release) -> str:
    return name if release.is_at_least(0, 10) else f"['{name}']"


def _cannot_convert(name: str, text: str, error: JavaError, release: Release) -> JavaError:
    reflection = "joptsimple.internal.ReflectionException"
    kind = "joptsimple.OptionArgumentConversionException"
    if release.is_at_least(0, 10):
        return JavaError(
            kind, f"Cannot parse argument '{text}' of option {name}", JavaError(reflection, str(error), error)
        )
    return JavaError(
        kind,
        f"Cannot convert argument '{text}' of option ['{name}'] to class java.lang.Integer",
        JavaError(reflection, str(error)),
    )
