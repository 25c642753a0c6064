"""The commits of a served model that requests name: each is loaded once, and few are kept."""

import collections
import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.loaded import Loaded, load, missing_commit
from bcmdist.committee.mixture_commits import Contents, MixtureLog
from bcmdist.errors import ModelNotFound
from bcmdist.storage.aliases import Alias, current
from bcmdist.storage.commits import open_store

MOST_KEPT = 2  # commits of a model that stay loaded beside the newest, each as large as that; arbitrary
IDLE_SECONDS = 60.0  # after which a commit that nobody has asked for is dropped, so that it can be pruned
Answer = TypeVar("Answer")


class ServedState(Protocol):
    """What predictions are computed with: a commit, or the newest one of a served model."""

    name: str

    def using(self) -> contextlib.AbstractContextManager[Loaded]:
        """Yield a loaded commit, which stays open within the context."""

    def ask(self, question: Callable[[Loaded], Answer]) -> Answer:
        """Apply `question` to a loaded commit and return its result."""


class AtCommit:
    """One commit of a model.

    Parameters
    ----------
    unused : called when nobody refers to this object any more, in any thread, which may hold locks
    """

    def __init__(self, name: str, loaded: Loaded, unused: Callable[[], None]):
        self.name, self.loaded = name, loaded
        weakref.finalize(self, unused).atexit = False

    @contextlib.contextmanager
    def using(self) -> Iterator[Loaded]:
        """Yield the commit."""
        yield self.loaded

    def ask(self, question: Callable[[Loaded], Answer]) -> Answer:
        """Apply `question` to the commit."""
        return question(self.loaded)


class CommitsByName:
    """The commits of a model by number and alias, of which those asked for last stay loaded, at most `MOST_KEPT`.

    Callable from any thread.

    Parameters
    ----------
    newest : context manager that yields the newest state
    """

    def __init__(self, name: str, url: str, newest: Callable[[], contextlib.AbstractContextManager[Loaded]]):
        self._name, self._url, self._newest, self._lock = name, url, newest, threading.Lock()
        self._kept: collections.OrderedDict[tuple, tuple[AtCommit, float]] = collections.OrderedDict()
        """commits and the time of their last use, by identity of the model and number; the last one used last"""
        self.aliases: dict[str, Alias] = {}
        """aliases by name, when last read"""
        self._entries: dict[str, int] = {}
        self._unused: collections.deque[Callable[[], None]] = collections.deque()
        """functions that close the commits to which nobody refers any more"""
        self.look()

    def look(self) -> None:
        """Read the aliases if they have changed; close commits that nobody has asked for lately."""
        with self._newest() as loaded:
            mixture = isinstance(loaded.version, Contents)
        commits = MixtureLog(self._url) if mixture else open_store(self._url)
        entries = current(commits)
        if entries != self._entries:
            self.aliases, self._entries = commits.aliases(), entries
        self.drop(IDLE_SECONDS)

    def at(self, commit: str) -> AtCommit:
        """Return the state of a commit, given by number or alias, loaded once.

        Raises
        ------
        Refused
            404: there is no such commit or alias. 410: the commit was pruned. 409: it is not the one that was named.
        """
        if not commit.isdigit() and commit not in self.aliases:
            self.look()
        alias = self.aliases.get(commit)
        if alias is None and not commit.isdigit():
            text = f"commit: expected a number, or an alias that GET /models/{self._name}/aliases lists, got another"
            raise Refused(404, "ModelNotFound", f"{text}; name one of them")
        found = self._at(alias.commit if alias else int(commit))
        version = found.loaded.version
        if alias and version and version.digest != alias.digest:
            raise Refused(409, "CommitConflict", f"commit: {commit} named one that was replaced; set the alias again")
        return found

    def _at(self, number) -> AtCommit:
        with self._newest() as newest:
            key = newest.snapshot.identity, number
        with self._lock:  # so that one is loaded at a time
            found, _ = self._kept.pop(key) if key in self._kept else (self._opened(number), 0.0)
            self._kept[key] = found, time.monotonic()
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found

    def _opened(self, number) -> AtCommit:
        """Load a commit, or take the newest state if it is that."""
        with contextlib.ExitStack() as stack:
            loaded = stack.enter_context(self._newest())
            if loaded.fitted.commit != number:
                stack.close()
                try:
                    loaded = load(self._url, number)
                except ModelNotFound as error:
                    raise missing_commit(self._url, self._name, number) from error
                stack.callback(loaded.close)
            return AtCommit(self._name, loaded, functools.partial(self._unused.append, stack.pop_all().close))

    def drop(self, idle: float = 0.0) -> None:
        """Close the commits that nobody has asked for in the last `idle` seconds, when no request uses them."""
        now = time.monotonic()
        with self._lock:
            for key in [key for key, (_, used) in self._kept.items() if now - used >= idle]:
                del self._kept[key]
        while self._unused:
            self._unused.popleft()()
