"""Undo the changes of a transaction to tables and sets in memory."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

__all__ = ["UndoLog"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class UndoLog:
    """Changes tables and sets, and restores them if a transaction is aborted.

    A transaction costs what it changes, however large the tables are. Everything that it changes must be changed here.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] | None = None  # what undoes each change, in the order of the changes

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and has not ended."""
        return self._steps is not None

    def begin(self) -> None:
        """Begin a transaction."""
        self._steps = []

    def keep(self) -> None:
        """End the transaction and keep its changes."""
        self._steps = None

    def abort(self) -> None:
        """End the transaction and undo its changes. Without a transaction, do nothing."""
        for undo in reversed(self._steps or ()):
            undo()
        self._steps = None

    def put(self, table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
        """Set the value of a key."""
        if self._steps is not None:
            undo = partial(table.__setitem__, key, table[key]) if key in table else partial(table.__delitem__, key)
            self._steps.append(undo)
        table[key] = value

    def drop(self, table: dict[_Key, _Value], key: _Key) -> None:
        """Remove a key, if it is there."""
        if self._steps is not None and key in table:
            self._steps.append(partial(table.__setitem__, key, table[key]))
        table.pop(key, None)

    def add(self, members: set[_Key], one: _Key) -> None:
        """Add a member to a set."""
        if self._steps is not None and one not in members:
            self._steps.append(partial(members.remove, one))
        members.add(one)

    def discard(self, members: set[_Key], one: _Key) -> None:
        """Remove a member of a set, if it is there."""
        if self._steps is not None and one in members:
            self._steps.append(partial(members.add, one))
        members.discard(one)
