"""Where partitions keep coming from: a growing data set, a directory of data sets, a stream.

Sources deliver at least once, in any order, late or again: the ledger of the model, a set of keys, decides what is
new. The offset up to which everything was absorbed is committed with the model, and what was committed is acknowledged
after that: whoever is killed in between is given some partitions again, and loses none.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bcmdist.data.groups import absolute_url
from bcmdist.data.reader import Reader
from bcmdist.data.registry import Registry
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.data.schemes import READERS, scheme_of
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.directory import Directory, GrownArray
from bcmdist.data.sources.redis import IDLE_SECONDS, RedisStream

__all__ = ["Delivery", "Source", "SourceOptions", "open_source", "register_source"]


class Source(Protocol):
    """Somewhere that partitions come from.

    Notes
    -----
    What `ingest` relies on, and `bcmdist.testing.check_source` tests:

    Offsets : JSON values. What follows an offset depends on the offset alone: not on earlier reads or acknowledgements,
        nor on the process. A commit of a model holds the offset up to which all is committed; a restart reads on there.
    Retries : `read` may be repeated with the same offset, and delivers the same partitions; an answer that was lost
        loses nothing. A server that does not answer is waited for, and is then `SourceUnreachable`.
    Duplicates : a partition may be delivered again, late and in any order: the ledger of the model knows its key, and
        skips it. A key names the same rows forever, whoever reads them: other rows under it are a `ChunkConflict`.
    Acknowledgement : `ack` follows the commit. It may be repeated, may be lost, and may come for partitions that others
        have committed. A source may let go of what was acknowledged, but only of rows that no `forget`, `merge` or
        second pass is to read again.
    Loss : what was announced and is gone is an error (`MissingChunk`) and never skipped.
    Passes : a fit of such data reads each partition several times, on several workers: for the survey, for learning,
        for each pass and for its errors. The `Reader` of its scheme gives the same rows each time.
    """

    @property
    def name(self) -> str:
        """Absolute URL, without a password: the key of its offset in a commit; "" where offsets are not kept."""

    def read(self, after: Any, most: int) -> list[Delivery]:
        """Up to `most` deliveries later than the offset `after` (None: from the start); [] where there is nothing now.

        Raises
        ------
        DataChanged, DataNotFound, InvalidData, MissingChunk, SourceUnreachable, UnsafeData
        """

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """The partitions of these keys, and all up to `offset`, are committed."""

    def lag(self, after: Any) -> int | None:
        """Partitions, about, beyond an offset or claimed by others; None where that is not known."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True)
class SourceOptions:
    """What a model asks of a source; each source takes what it can use."""

    rows_per_expert: int
    """rows of a partition, about"""
    watch: bool
    """rows may be being added: deliver only what can no longer change, and what comes later in later reads"""
    x: str = "X"
    y: str | None = "y"
    schema: Schema = UNNAMED
    """names of the inputs and classes of the model that is to absorb the rows"""
    group: str = "bcmdist"
    """consumer group of a stream, by which ingesters of one model share the work"""
    consumer: str | None = None
    """name within the group; a new one by default"""
    idle_seconds: float = IDLE_SECONDS
    """after which, under `watch`, entries of a stream that a consumer has not acknowledged are taken from it"""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """where the newest commit of the model reads on, by the name of a source"""
    ledger: Iterable[str] = ()
    """keys of the partitions that the model has absorbed"""


Opener = Callable[[str, SourceOptions], Source]


def open_source(url, **options) -> Source:
    """The source at a URL: a Zarr data set, a directory of them, redis://HOST[:PORT][/DB]/STREAM, or one of a scheme
    that was registered.

    Parameters
    ----------
    options : those of `SourceOptions`

    Raises
    ------
    InvalidOption, MissingExtra
    """
    scheme, asked = scheme_of(url), SourceOptions(**options)
    return SOURCES[scheme](url, asked) if scheme and scheme in SOURCES else _open_zarr(url, asked)


def register_source(scheme: str, opener: Opener, reader: Reader | None = None) -> None:
    """Add the sources of a scheme of URLs, such as "kafka" of kafka://HOST/TOPIC.

    Workers and the command line know them where the module is named under the entry points of `bcmdist.data.registry`.

    Parameters
    ----------
    opener : makes a source of a URL and `SourceOptions`; a class may be one
    reader : of the data sets in its partitions, whose URLs have the same scheme; none where they are Zarr groups

    Raises
    ------
    InvalidOption
        The scheme is taken.
    """
    SOURCES.add(scheme, opener)
    if reader is not None:
        READERS.add(scheme, reader)


def _open_zarr(url, options: SourceOptions) -> Source:
    """A data set, or a directory of them."""
    place = absolute_url(url)
    of_zarr = ("zarr.json", ".zgroup", ".zmetadata")
    among = os.path.isdir(place) and not any(os.path.exists(f"{place}/{name}") for name in of_zarr)
    return (Directory if among else GrownArray)(
        place,
        x=options.x,
        y=options.y,
        schema=options.schema,
        rows_per_expert=options.rows_per_expert,
        watch=options.watch,
    )


def _open_redis(url, options: SourceOptions) -> Source:
    return RedisStream(
        url,
        x=options.x,
        y=options.y,
        schema=options.schema,
        group=options.group,
        consumer=options.consumer,
        idle_seconds=options.idle_seconds,
        watch=options.watch,
        offsets=options.offsets,
        ledger=options.ledger,
    )


SOURCES: Registry[Opener] = Registry("source")
SOURCES.add("redis", _open_redis)
SOURCES.add("rediss", _open_redis)
