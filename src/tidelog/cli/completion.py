"""`tidelog completion`: the script that makes a shell complete commands, options, and the topics of a directory."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class, split_arg_string

__all__ = ["complete_topic", "completion"]

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(tidelog completion bash)"        in ~/.bashrc
    zsh:   eval "$(tidelog completion zsh)"         in ~/.zshrc
    fish:  tidelog completion fish | source         in ~/.config/fish/config.fish
    """
    from tidelog.cli.main import cli

    script = get_completion_class(shell)
    assert script is not None, f"click knows no completion for {shell}"
    click.echo(script(cli, {}, "tidelog", "_TIDELOG_COMPLETE").source())


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The topics of the directories that were typed before, by the names of their subdirectories alone."""
    from tidelog.errors import TidelogError
    from tidelog.log.names import check_topic_name, parse_directory_name

    topics = set()
    for name in _names_below_what_was_typed():
        try:
            topic = parse_directory_name(name).topic
            check_topic_name(topic)
        except TidelogError:
            continue  # no partition, or one whose name a shell might take for something else
        topics.add(topic)
    begun = [topic for topic in sorted(topics) if topic.startswith(incomplete)]
    return [CompletionItem(topic) for topic in begun or get_close_matches(incomplete, sorted(topics))]


def _names_below_what_was_typed() -> Iterator[str]:
    """Of every word on the line that is a directory, what lies in it.

    The words are those that the shell hands over: of a line that is not complete click parses nothing.
    """
    for word in split_arg_string(os.environ.get("COMP_WORDS", "")):
        try:
            yield from (entry.name for entry in Path(word).expanduser().iterdir() if entry.is_dir())
        except (OSError, RuntimeError):
            continue  # no directory, or none that we may read: a completion has nobody to tell
