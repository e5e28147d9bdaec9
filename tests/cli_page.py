"""The page of the command line, `docs/cli.md`, written from the help of the commands. `make docs` writes it.

The text is what `--help` prints in a terminal of 100 characters, so the page cannot say anything else than the command.
"""

from pathlib import Path

import click

from tidelog.cli.main import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

_HEAD = """\
# The command line

One verb per job. This page is printed by `make docs` from the help of each command; `tidelog COMMAND --help` shows the
same. Tables are for people, `--json` is for programs; progress appears on standard error, and only in a terminal.

| exit code | means |
|---|---|
| 0 | fine |
| 1 | findings or differences, or not done as you wished |
| 2 | wrong usage: words that do not fit, or a path that does not exist, is a file, or holds no log |
| 3 | something could not be read or written: damaged bytes, missing rights, a disk that fails or is full |
| 130 | interrupted |

A command that is given several directories does nothing if one of them is wrong usage. Only `load --to` makes a
directory that does not exist, and takes an empty one. With `--config`, an empty directory of log.dirs is passed over:
it is a new disk. A formatted one without partitions is passed over beside others that have some, named or not. A
check by `fsck` judges log directories that are missing, empty or files: Kafka may not start on them. `dump-log`
alone keeps the exit codes of Kafka's tool, and `--help` prints its text; `dump-log -h` prints ours.
Completion for your shell: `tidelog completion --help`.
"""


def page() -> str:
    """The whole page."""
    whole = click.Context(cli, info_name="tidelog", terminal_width=100, **cli.context_settings)
    parts = [_HEAD, f"## tidelog\n\n{_block(cli.get_help(whole))}"]
    for name in cli.list_commands(whole):
        command = cli.get_command(whole, name)
        assert command is not None
        context = click.Context(command, parent=whole, info_name=name, terminal_width=100, **command.context_settings)
        parts.append(f"## {name}\n\n{_block(command.get_help(context))}")
        if isinstance(command, click.Group):
            parts += _below(command, context, name)
    return "\n".join(parts)


def _below(group: click.Group, context: click.Context, name: str) -> list[str]:
    """The commands of a command."""
    parts = []
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=each, terminal_width=100, **command.context_settings)
        parts.append(f"### {name} {each}\n\n{_block(command.get_help(inner))}")
    return parts


def _block(text: str) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
