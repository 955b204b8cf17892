"""What a disk holds after power was lost: only what had been waited for is certain to be there."""

import os
import random
import stat
import sys
from contextlib import suppress

import pytest

CALLS = {
    "os": ("replace", "rename", "fsync", "open", "close", "unlink", "remove", "mkdir", "rmdir"),
    "io": ("open",),
}
DRAWN = 4
"""Mixtures of changes that are on the disk and changes that are not, at each moment."""


def names_in(folder):
    """Names in a folder, each with its inode and whether it is a folder's."""
    with os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}


class Disk:
    """A folder, and what of it is on the disk, by inode: contents of files as they were at their
    last `fsync`, names in a folder as they were then or at any moment since."""

    def __init__(self, root):
        self.root, self.contents, self.names, self.held = root, {}, {}, []
        self.states = []
        for path in (root, *root.rglob("*")):
            self._note(os.open(path, os.O_RDONLY))

    def _note(self, opened):
        self.held.append(opened)  # An inode that is open is not given to another file.
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            self.names[found.st_ino] = [names_in(opened)]
        else:
            self.contents[found.st_ino] = os.pread(opened, found.st_size, 0)

    def after_power_is_lost(self, choose):
        """Contents by path, of folders None; `choose` takes the names of a folder among those that
        it has had."""

        def below(number, path):
            found = {}
            for name, (inode, is_folder) in choose(self.names.get(number, [{}])).items():
                if is_folder:
                    found |= {f"{path}{name}/": None, **below(inode, f"{path}{name}/")}
                else:
                    found[f"{path}{name}"] = self.contents.get(inode, b"")
            return found

        return below(self.root.stat().st_ino, "")

    def _moment(self):
        for path in (self.root, *self.root.rglob("*")):
            if path.is_dir():
                had = self.names.setdefault(path.stat().st_ino, [{}])
                if had[-1] != (now := names_in(path)):
                    had.append(now)
        chance = random.Random(len(self.states))
        how = [lambda had: had[0], lambda had: had[-1], *[chance.choice] * DRAWN]
        for one in how:
            state = self.after_power_is_lost(one)
            if state not in self.states:
                self.states.append(state)

    def during(self, work):
        """All that the disk may hold, if power is lost before any call of the system that `work`
        makes, or after the last."""
        inside = []

        def watched(name, call):
            def called(*args, **options):
                if inside:
                    return call(*args, **options)
                inside.append(name)
                try:
                    with suppress(FileNotFoundError):  # Of another thread's files
                        self._moment()
                    if name == "fsync":
                        self._note(os.dup(args[0]))
                    return call(*args, **options)
                finally:
                    inside.pop()

            return called

        with pytest.MonkeyPatch.context() as patch:
            for module, names in CALLS.items():
                for name in names:
                    given = getattr(sys.modules[module], name)
                    patch.setattr(sys.modules[module], name, watched(name, given))
            work()
        self._moment()
        for opened in self.held:
            os.close(opened)
        return self.states


def written(state, root):
    """The files of a state in a folder."""
    for name, content in state.items():
        path = root / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return root
