"""The usage text of the tool, laid out as its option library lays it out: two columns in 80.

Three layouts have been in use. Descriptions are broken at blanks, behind hyphens and behind dots inside a word.
"""

import re

from tidelog.dump.options import Option, options_of
from tidelog.dump.releases import Release

__all__ = ["purpose", "usage_text"]

_WIDTH = 80
_OLD_OPTION_WIDTH = 38
_OLD_TEXT_WIDTH = 39
_GAP = "  "

# Where a line may end: behind blanks, or inside a word behind a hyphen or a dot that a letter follows.
_PIECES = re.compile(r"\S+?(?:[-.](?=[A-Za-z])|\s+|$)")


def purpose(release: Release) -> str:
    """The sentence that the usage text begins with."""
    start = "This tool helps to parse" if release.is_at_least(2, 2) else "Parse"
    return (
        f"{start} a log file and dump its contents to the console, useful for debugging a seemingly corrupt log "
        "segment."
    )


def usage_text(release: Release) -> str:
    """All options with their descriptions."""
    rows = [(_option_text(option, release), _description(option)) for option in options_of(release)]
    option_width = max(len(name) for name, _ in rows)
    text_width = _WIDTH - option_width - len(_GAP)
    if not release.is_at_least(0, 10, 2):
        text_width = _OLD_TEXT_WIDTH
        if not release.is_at_least(0, 10):
            option_width = _OLD_OPTION_WIDTH
    wrapped = [(name, _wrap(text, text_width)) for name, text in rows]
    shown_width = max(len(line) for _, lines in wrapped for line in lines)
    lines = [("Option", "Description"), ("------", "-----------")]
    for name, texts in wrapped:
        lines += [(name if not index else "", text) for index, text in enumerate(texts)]
    return "".join(f"{name:<{option_width}}{_GAP}{text:<{shown_width}}\n" for name, text in lines)


def _option_text(option: Option, release: Release) -> str:
    name = f"--{option.name}"
    if option.value == "none":
        return name
    has_types = release.is_at_least(0, 10, 2)
    value_type = option.value_type if has_types or option.value_type != "String" else ""
    value = ": ".join(filter(None, (value_type, option.value_name)))
    if option.value == "required":
        return f"{name} <{value}>"
    return f"{name} [{value}]" if value else name


def _description(option: Option) -> str:
    return f"{option.text} (default: {option.default})" if option.default else option.text


def _wrap(text: str, width: int) -> list[str]:
    """Fill lines of `width`; all but the first are indented by two."""
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line.strip() and len(line) + len(piece) > width:
            lines.append(line.rstrip())
            line = _GAP
        line += piece
    return [*lines, line.rstrip()]
