"""A disk in memory that loses, in a crash, whatever of the unsynced it likes.

It stands in for `os` in `LocalStorage`. Bytes written survive a crash only after fsync of their file; a name that
was made or removed survives only after fsync of its directory. What was not synced may be lost, kept or (bytes)
torn, each name and each file for itself.
"""

import os
import stat
from collections.abc import Callable


class LosingDisk:
    """Files and directories by inode number; 0 is the root.

    A file is (bytes now, bytes synced); a directory (names now, names synced, all values that a name has had since).
    Both are replaced and never changed, so that a copy of the table is a copy of the disk.
    """

    def __init__(self, inodes=None):
        self.inodes = dict(inodes) if inodes else {0: ({}, {}, {})}
        self.next = max(self.inodes) + 1
        self.handles: dict[int, list[int]] = {}
        self.before_each: Callable[[], None] = lambda: None

    def _find(self, path):
        at = 0
        for part in path.split("/"):
            if part:
                names = self.inodes[at][0]
                if not isinstance(names, dict):
                    raise NotADirectoryError(path)
                if part not in names:
                    raise FileNotFoundError(path)
                at = names[part]
        return at

    def _name(self, path, inode):
        """Let a name stand for an inode, or for none."""
        folder, _, name = path.rpartition("/")
        at = self._find(folder)
        now, synced, since = self.inodes[at]
        now = {n: i for n, i in now.items() if n != name}
        if inode is not None:
            now[name] = inode
        self.inodes[at] = now, synced, since | {name: (*since.get(name, ()), inode)}

    def _new(self, path, inode):
        if self.access(path, os.F_OK):
            raise FileExistsError(path)
        self.inodes[self.next] = inode
        self._name(path, self.next)
        self.next += 1
        return self.next - 1

    def _handle(self, inode):
        self.handles[self.next] = [inode, 0]
        self.next += 1
        return self.next - 1

    def access(self, path, mode):
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def listdir(self, path):
        names = self.inodes[self._find(path)][0]
        if not isinstance(names, dict):
            raise NotADirectoryError(path)
        return list(names)

    def open(self, path, flags, mode=0):
        if not flags & os.O_CREAT:
            return self._handle(self._find(path))
        self.before_each()
        return self._handle(self._new(path, (b"", b"")))

    def fstat(self, handle):
        folder = isinstance(self.inodes[self.handles[handle][0]][0], dict)
        return os.stat_result([stat.S_IFDIR if folder else stat.S_IFREG, *[0] * 9])

    def read(self, handle, count):
        inode, position = self.handles[handle]
        self.handles[handle][1] += count
        return self.inodes[inode][0][position : position + count]

    def write(self, handle, data):
        self.before_each()
        now, synced = self.inodes[self.handles[handle][0]]
        self.inodes[self.handles[handle][0]] = now + bytes(data), synced
        return len(data)

    def fsync(self, handle):
        self.before_each()
        inode = self.handles[handle][0]
        now = self.inodes[inode][0]
        self.inodes[inode] = (now, now, {}) if isinstance(now, dict) else (now, now)

    def close(self, handle):
        del self.handles[handle]

    def link(self, path, new):
        self.before_each()
        if self.access(new, os.F_OK):
            raise FileExistsError(new)
        self._name(new, self._find(path))

    def unlink(self, path):
        self.before_each()
        self._find(path)
        self._name(path, None)

    def mkdir(self, path):
        self.before_each()
        self._new(path, ({}, {}, {}))

    def rmdir(self, path):
        self.before_each()
        if self.inodes[self._find(path)][0]:
            raise OSError("not empty")
        self._name(path, None)

    def crashed(self, rng) -> "LosingDisk":
        """What a crash leaves: a disk on which everything is synced."""
        left = {}
        for inode, (now, synced, *since) in self.inodes.items():
            if since:
                names = dict(synced)
                for name, values in since[0].items():
                    value = rng.choice((synced.get(name), *values))
                    names.pop(name, None)
                    if value is not None:
                        names[name] = value
                left[inode] = names, names, {}
            else:
                kept = now if now == synced else rng.choice((synced, now, now[: rng.randrange(len(now) + 1)]))
                left[inode] = kept, kept
        return LosingDisk(left)

    def files(self) -> frozenset:
        """Paths and bytes of all files, but for temporary ones."""
        found, waiting = [], [("", 0)]
        while waiting:
            path, inode = waiting.pop()
            content = self.inodes[inode][0]
            if isinstance(content, dict):
                waiting += [(f"{path}/{name}", i) for name, i in content.items() if not name.startswith(".tmp-")]
            else:
                found.append((path, content))
        return frozenset(found)
