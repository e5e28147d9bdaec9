"""Whose files are: what a repair writes gets the owner and the mode of what lay there before."""

import os
import stat

from tidelog.log.files import join
from tidelog.log.local_files import storage_error

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
                self._set(name, self._own.st_uid, self._own.st_gid, stat.S_IMODE(self._own.st_mode) & 0o666)
            else:
                self._set(name, model.st_uid, model.st_gid, stat.S_IMODE(model.st_mode))

    def give_to_directory(self, name: str) -> None:
        """Let the owner of the directory write a file, from now on."""
        mode = stat.S_IMODE(self._files[name].st_mode) | 0o600
        self._set(name, self._own.st_uid, self._own.st_gid, mode)
        self._files[name] = os.stat(join(self._directory, name))

    def _set(self, name: str, user: int, group: int, mode: int) -> None:
        path = join(self._directory, name)
        try:
            now = os.stat(path, follow_symlinks=False)
            if (now.st_uid, now.st_gid) != (user, group) and os.geteuid() == 0:
                os.chown(path, user, group, follow_symlinks=False)
            if stat.S_IMODE(now.st_mode) != mode and os.geteuid() in (0, now.st_uid):
                os.chmod(path, mode)
        except OSError as error:
            raise storage_error(path, error) from error
