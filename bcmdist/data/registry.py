"""Registries: objects that users choose by name, from bcmdist and from other packages.

bcmdist registers its own objects where they are defined. The methods (`bcmdist.methods.every`), which import the
modules that contain registries, are loaded like plugins when a name is not found, because a task with a stored model
may reach a worker before anything else has imported them.

Another package registers an object where it is defined, and lists that module under the entry points
`bcmdist.plugins`, so that workers and command lines load it without importing it explicitly:

    [project.entry-points."bcmdist.plugins"]
    mine = "mine.kernels"
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Generic, TypeVar

from bcmdist.errors import InvalidOption

Thing = TypeVar("Thing")
METHODS = "bcmdist.methods"
EVERY_METHOD = "bcmdist.methods.every"
PLUGINS = "bcmdist.plugins"


class Registry(Generic[Thing]):
    """Objects by name, in the order of registration.

    Parameters
    ----------
    kind : what the objects are, for error messages: "kernel"
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._things: dict[str, Thing] = {}

    def add(self, name: str, thing: Thing) -> Thing:
        """Register an object under a unique name. Registering the same object again has no effect.

        Raises
        ------
        InvalidOption
            The name is taken.
        """
        before = self._things.setdefault(name, thing)
        if before is not thing:
            raise InvalidOption(
                f"{self.kind}: expected a name of its own, {name!r} is that of {before!r}; choose another"
            )
        return thing

    def __getitem__(self, name: str) -> Thing:
        """Return the object with a name.

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
        """Iterate over names in the order of registration; complete only after `load_plugins`."""
        return iter(list(self._things))

    def __len__(self) -> int:
        return len(self._things)


@cache
def load_plugins() -> None:
    """Import the package's methods and the plugin modules of other packages, once per process."""
    import_module(EVERY_METHOD)
    load_packages()


@cache
def load_packages() -> None:
    """Import the plugin modules of other packages, once per process."""
    from importlib.metadata import entry_points  # quick start

    for entry in entry_points(group=PLUGINS):
        entry.load()
