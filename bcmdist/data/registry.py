"""Registries: what has a name by which users choose it, ours and what other packages add.

The core registers its own where they are defined. The package's methods (`bcmdist.methods`), which stand above
all that has a registry, are imported like the modules of other packages when a name is not found: a task with a stored
model may reach a worker before anything else has imported them.

A package adds something by registering it where it is defined, and by naming the module under the entry points
`bcmdist.plugins`, so that workers and command lines, which never import it themselves, find it:

    [project.entry-points."bcmdist.plugins"]
    mine = "mine.kernels"
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from bcmdist.errors import InvalidOption

Thing = TypeVar("Thing")
METHODS = "bcmdist.methods"
PLUGINS = "bcmdist.plugins"


class Registry(Generic[Thing]):
    """Things by name, in the order in which they were added.

    Parameters
    ----------
    kind : what they are, for errors: "kernel"
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._things: dict[str, Thing] = {}

    def add(self, name: str, thing: Thing) -> Thing:
        """Add a thing under a name of its own; adding the same again changes nothing.

        Raises
        ------
        InvalidOption
            The name is taken.
        """
        known = self._things.setdefault(name, thing)
        if known is not thing:
            raise InvalidOption(
                f"{self.kind}: expected a name of its own, {name!r} is that of {known!r}; choose another"
            )
        return thing

    def __getitem__(self, name: str) -> Thing:
        """The thing of a name.

        Raises
        ------
        InvalidOption
        """
        if name not in self:
            raise InvalidOption(
                f"{self.kind}: expected one of {', '.join(self)}, got {name!r:.80}; give one of these, or install the "
                f"package that adds it (as an entry point of {PLUGINS})"
            )
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._things:
            load_plugins()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        """Names, in the order in which they were added; of all only after `load_plugins`."""
        return iter(list(self._things))

    def __len__(self) -> int:
        return len(self._things)


@cache
def load_plugins() -> None:
    """Import the package's methods and the modules that other packages have named, once."""
    import_module(METHODS)
    for entry in entry_points(group=PLUGINS):
        entry.load()
