"""Where partitions keep coming from: a growing data set, a directory of data sets, a stream.

Sources deliver at least once, in any order, late or again: the ledger of the model, a set of keys, decides what is
new. The offset up to which everything was heard is committed with the model, and what was committed is acknowledged
after that: whoever is killed in between is given some partitions again, and loses none.
"""

import os
from collections.abc import Iterable
from typing import Any, Protocol

from bcmdist.data.dataset import absolute_url
from bcmdist.data.redis import is_stream
from bcmdist.data.schema import UNNAMED
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.directory import Directory
from bcmdist.data.sources.growing import GrownArray
from bcmdist.data.sources.redis import IDLE_SECONDS, RedisStream

__all__ = ["Delivery", "Source", "open_source"]


class Source(Protocol):
    """Somewhere that partitions come from."""

    @property
    def name(self) -> str:
        """Absolute URL, without a password: what offsets are known by."""

    def read(self, after: Any, most: int) -> list[Delivery]:
        """Up to `most` partitions later than the offset `after` (None: from the start); [] where there is nothing now.

        Called again with the same `after` it delivers the same again.

        Raises
        ------
        DataChanged, DataNotFound, InvalidData, MissingChunk, SourceUnreachable, UnsafeData
        """

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """These partitions are committed, or were before; so is all up to `offset`."""

    def lag(self, after: Any) -> int | None:
        """Partitions, about, that wait beyond an offset, or were given to others; None where it cannot be told."""

    def close(self) -> None:
        """Let go of connections."""


def open_source(
    url,
    *,
    x="X",
    y: str | None = "y",
    rows_per_expert,
    watch: bool,
    schema=UNNAMED,
    group="bcmdist",
    consumer=None,
    idle_seconds=IDLE_SECONDS,
) -> Source:
    """The source at a URL: a Zarr data set, a directory of them, or redis://HOST[:PORT][/DB]/STREAM.

    Parameters
    ----------
    schema : names of the inputs and classes of the model that is to hear the rows
    watch : rows may be being added: deliver only what can no longer change, and what comes later in later reads
    group : consumer group of a stream: one for each model, since its consumers share the entries among them
    consumer : name within the group; a new one by default
    idle_seconds : after which entries of a stream that a consumer has not acknowledged are taken from it

    Raises
    ------
    InvalidOption, MissingExtra
    """
    if is_stream(url):
        return RedisStream(url, x=x, y=y, schema=schema, group=group, consumer=consumer, idle_seconds=idle_seconds)
    place = absolute_url(url)
    of_zarr = ("zarr.json", ".zgroup", ".zmetadata")
    if os.path.isdir(place) and not any(os.path.exists(f"{place}/{name}") for name in of_zarr):
        return Directory(place, x=x, y=y, schema=schema, rows_per_expert=rows_per_expert, watch=watch)
    return GrownArray(place, x=x, y=y, schema=schema, rows_per_expert=rows_per_expert, watch=watch)
