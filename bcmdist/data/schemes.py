"""URL schemes with a `Reader` of their own; all other URLs are Zarr groups or files."""

from bcmdist.data.entries import StreamEntries
from bcmdist.data.kafka import KafkaMessages
from bcmdist.data.reader import Reader
from bcmdist.data.registry import Registry
from bcmdist.data.sql import SqlRows

READERS: Registry[Reader] = Registry("scheme")
READERS.add("redis", StreamEntries)
READERS.add("rediss", StreamEntries)
READERS.add("kafka", KafkaMessages())
READERS.add("sql", SqlRows())


def scheme_of(url) -> str:
    """Return the scheme of a URL, before "://" and any "+", as in sql+sqlite://; "" for a path."""
    scheme, colon, _ = str(url).partition("://")
    return scheme.partition("+")[0] if colon else ""


def reader_of(url) -> Reader | None:
    """Return the reader for a URL; None if Zarr reads it."""
    scheme = scheme_of(url)
    return READERS[scheme] if scheme and scheme in READERS else None
