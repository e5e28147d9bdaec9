"""Reject an option that takes one value and is given twice.

click silently keeps the last value: `--topic A --topic B` would export only B. This check runs for all commands, before
they parse their arguments.
"""

from collections import Counter

import click

__all__ = ["ensure_given_once"]


def ensure_given_once(command: click.Command, words: list[str], parent: click.Context) -> None:
    """Raise UsageError if an option of a command is given twice and has one value.

    A flag may be repeated, unless one spelling of it says yes and the other no.
    """
    context = click.Context(command, info_name=command.name, parent=parent, **command.context_settings)
    try:
        _, _, order = command.make_parser(context).parse_args(list(words))
    except click.UsageError:
        return  # the command parses the same words next, and reports it
    for parameter, times in Counter(order).items():
        if times > 1 and isinstance(parameter, click.Option) and _has_one_value(parameter):
            name = "/".join((parameter.opts[0], *parameter.secondary_opts[:1]))
            raise click.UsageError(f"{name} is given {times} times and has one value.", context)


def _has_one_value(option: click.Option) -> bool:
    if option.multiple or option.count:
        return False
    return not option.is_flag or bool(option.secondary_opts)
