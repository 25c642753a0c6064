"""What a model directory asks of where it lies; `disk` and `s3` are the implementations."""

from typing import Protocol

TEMPORARY = ".tmp-"


class Storage(Protocol):
    """Named byte strings that are written once. Names are relative, with `/` between parts."""

    url: str

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write durably; False, and no effect, where the name is taken."""

    def get(self, name: str) -> bytes:
        """The bytes; FileNotFoundError where there are none."""

    def stored_at(self, name: str) -> float:
        """When a name was put, in seconds since 1970 UTC; FileNotFoundError where there is none."""

    def names(self, folder: str) -> list[str]:
        """Sorted last parts of the names in a folder."""

    def temporary(self, folder: str) -> list[str]:
        """Names of what unfinished puts into a folder have left, or are about to finish."""

    def remove(self, name: str) -> None:
        """Forget a name, and folders that it leaves empty; no error where there is none. Not durable."""

    def settle(self, folder: str) -> None:
        """Make the names in a folder durable as they are: also those whose put has not returned yet."""

    def remove_all(self) -> None:
        """Forget every name."""
