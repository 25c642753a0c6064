"""The interface of storage for model directories; `disk` and `objects` implement it."""

from typing import Protocol

TEMPORARY = ".tmp-"


class Storage(Protocol):
    """Named byte strings, each written once. Names are relative paths with `/` between parts."""

    url: str

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write durably and return True; return False, without effect, if the name is taken."""

    def put_own(self, name: str, data: bytes) -> None:
        """Write durably under a name that no other caller uses, such as one with a random part."""

    def get(self, name: str) -> bytes:
        """Return the bytes of a name; raise FileNotFoundError if there is none."""

    def stored_at(self, name: str) -> float:
        """Return when a name was put, in seconds since 1970 UTC; raise FileNotFoundError if there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the last parts of the names in a folder, sorted."""

    def temporary(self, folder: str) -> list[str]:
        """Return the names of temporary files in a folder, of puts that were aborted or are running."""

    def remove(self, name: str) -> None:
        """Remove a name, and folders that become empty; no error if there is none. Not durable."""

    def settle(self, folder: str) -> None:
        """Make the present names in a folder durable, including those whose put has not returned yet."""

    def remove_all(self) -> None:
        """Remove every name."""
