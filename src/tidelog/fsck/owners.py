"""Whose files are: what a repair writes gets the owner and the mode of what lay there before."""

import os
import stat

from tidelog.log.files import join
from tidelog.log.local_files import own_as, storage_error

__all__ = ["Owners"]


class Owners:
    """Owner and mode of the files in a directory, as they were."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._own = os.stat(directory)
            with os.scandir(directory) as entries:
                self._files = {entry.name: entry.stat(follow_symlinks=False) for entry in entries if entry.is_file()}
        except OSError as error:
            raise storage_error(directory, error) from error
        self._by_kind = {name.rpartition(".")[2]: found for name, found in sorted(self._files.items(), reverse=True)}

    def give_back(self) -> None:
        """Give every file the owner and the mode it had; a new one those of a file of its kind, or of any."""
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        some = next(iter(self._files.values()), None)
        for name in names:
            model = self._files.get(name) or self._by_kind.get(name.rpartition(".")[2]) or some
            if model is None:
                own_as(join(self._directory, name), self._own, stat.S_IMODE(self._own.st_mode) & 0o666)
            else:
                own_as(join(self._directory, name), model, stat.S_IMODE(model.st_mode))

    def give_to_directory(self, name: str) -> None:
        """Let the owner of the directory write a file, from now on."""
        mode = stat.S_IMODE(self._files[name].st_mode) | 0o600
        own_as(join(self._directory, name), self._own, mode)
        self._files[name] = os.stat(join(self._directory, name), follow_symlinks=False)
