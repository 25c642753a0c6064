"""Sources of new partitions: a data set or a directory of them that grows, a stream, a table, or a registered scheme.

Delivery is at least once, in any order, possibly late: the ledger of the model, a set of keys, decides which partitions
are new. The offset up to which everything was absorbed is committed with the model, and partitions are acknowledged
after the commit. An ingester that is killed in between receives some partitions again, and loses none.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bcmdist.data.groups import Location, absolute_url
from bcmdist.data.mqtt import refuse_broker
from bcmdist.data.reader import Reader
from bcmdist.data.registry import Registry
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.data.schemes import READERS, scheme_of
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.directory import Directory, GrownArray
from bcmdist.data.sources.icechunk import SnapshotSource
from bcmdist.data.sources.kafka import KafkaTopic
from bcmdist.data.sources.redis import IDLE_SECONDS, RedisStream
from bcmdist.data.sources.sql import SqlSource
from bcmdist.errors import InvalidOption
from bcmdist.storage.ledger import Ledger

__all__ = ["Delivery", "Source", "SourceOptions", "open_source", "register_source"]


class Source(Protocol):
    """Interface of a source of partitions.

    Notes
    -----
    The contract on which `ingest` relies, tested by `bcmdist.testing.check_source`:

    Offsets : JSON values. What follows an offset depends on the offset alone, not on earlier reads, acknowledgements or
        the process. A commit of a model holds the offset up to which everything is committed; a restart continues
        there.
    Retries : `read` may be repeated with the same offset and delivers the same partitions, so a lost response loses
        nothing. If the server does not answer, the source waits, and then raises `SourceUnreachable`.
    Duplicates : a partition may be delivered again, late and in any order; the ledger of the model contains its key,
        and it is skipped. A key names the same rows forever, for all readers: other rows under it are a
        `ChunkConflict`.
    Acknowledgement : `ack` follows the commit. It may be repeated, may be lost, and may name partitions that other
        ingesters have committed. A source may delete what was acknowledged, but only rows that no `forget`, `merge` or
        second pass will read again.
    Loss : announced data that no longer exist are an error (`MissingChunk`), never skipped.
    Passes : a fit of such data reads each partition several times, on several workers: for the survey, for learning,
        for each pass and for its errors. The `Reader` of the scheme must return the same rows each time.
    """

    @property
    def name(self) -> str:
        """Absolute URL without a password: the key of its offset in a commit. "" if offsets are not kept."""

    def read(self, after: Any, most: int) -> list[Delivery]:
        """Return up to `most` partitions after the offset `after` (None: from the start); [] if there are none now.

        Raises
        ------
        DataChanged, DataNotFound, InvalidData, MissingChunk, SourceUnreachable, UnsafeData
        """

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """Acknowledge that the partitions of these keys, and everything up to `offset`, are committed."""

    def lag(self, after: Any) -> int | None:
        """Return the approximate number of partitions after an offset or claimed by others; None if unknown."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True)
class SourceOptions:
    """Options that a model passes to a source; each source uses those that apply to it."""

    rows_per_expert: int
    """approximate rows of a partition"""
    watch: bool
    """whether rows may still be added: deliver only partitions that can no longer change, and others in later reads"""
    x: str = "X"
    y: str | None = "y"
    schema: Schema = UNNAMED
    """names of the inputs and classes of the model that will absorb the rows"""
    group: str = "bcmdist"
    """consumer group of a stream, through which ingesters of one model share the work"""
    consumer: str | None = None
    """name within the group; a new one by default"""
    idle_seconds: float = IDLE_SECONDS
    """with `watch`, seconds after which unacknowledged stream entries are taken over from their consumer"""
    trim: bool = False
    """remove stream entries from the server once they are committed"""
    offsets: Mapping[str, Any] = field(default_factory=dict)
    """offsets in the newest commit of the model, by the name of a source"""
    ledger: Ledger = field(default_factory=Ledger)
    """the partitions that the model has absorbed"""


Opener = Callable[[str, SourceOptions], Source]


def open_source(url: Location, **options: Any) -> Source:
    """Open the source at a URL: a Zarr data set, a directory of them, a Redis Stream, a Kafka topic, a table of a
    database, a repository of Icechunk, or a registered scheme.

    Parameters
    ----------
    url : path or URL; redis://HOST[:PORT][/DB]/STREAM for a stream
    options : fields of `SourceOptions`

    Raises
    ------
    InvalidOption, MissingExtra
    """
    scheme, asked = scheme_of(url), SourceOptions(**options)
    return SOURCES[scheme](str(url), asked) if scheme and scheme in SOURCES else _open_zarr(url, asked)


def register_source(scheme: str, opener: Opener, reader: Reader | None = None) -> None:
    """Register a source for a URL scheme, such as "pulsar" in pulsar://HOST/TOPIC.

    What follows a "+" in the scheme is up to the source. Workers and the command line find it if its module is listed
    under the entry points of `bcmdist.data.registry`.

    Parameters
    ----------
    scheme : lower-case name of the scheme
    opener : callable (may be a class) that makes a source from a URL and `SourceOptions`
    reader : reads the data sets of its partitions, whose URLs have the same scheme; None if these are Zarr groups

    Raises
    ------
    InvalidOption
        The scheme is taken.

    Examples
    --------
    >>> from bcmdist.data.sources.delivery import Listed
    >>> bcmdist.register_source("nothing", lambda url, options: Listed((), url))
    >>> gbcm.source("nothing://here").lag(None)
    0
    """
    SOURCES.add(scheme, opener)
    if reader is not None:
        READERS.add(scheme, reader)


def _open_zarr(url, options: SourceOptions) -> Source:
    """Open a data set, or a directory of data sets."""
    if options.trim:
        raise InvalidOption(f"--trim: expected a stream, got {url!s:.80}, of which nothing is removed; leave it out")
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
        trim=options.trim,
        watch=options.watch,
        offsets=options.offsets,
        ledger=options.ledger,
    )


SOURCES: Registry[Opener] = Registry("source")
SOURCES.add("redis", _open_redis)
SOURCES.add("rediss", _open_redis)
SOURCES.add("icechunk", SnapshotSource)
SOURCES.add("kafka", KafkaTopic)
SOURCES.add("mqtt", refuse_broker)
SOURCES.add("mqtts", refuse_broker)
SOURCES.add("sql", SqlSource)
