"""Schemes of URLs that have a `Reader` of their own; behind all others there are Zarr groups, and files."""

from bcmdist.data.entries import StreamEntries
from bcmdist.data.reader import Reader
from bcmdist.data.registry import Registry

READERS: Registry[Reader] = Registry("scheme")
READERS.add("redis", StreamEntries)
READERS.add("rediss", StreamEntries)


def scheme_of(url) -> str:
    """What stands before :// in a URL; empty of a path."""
    scheme, colon, _ = str(url).partition("://")
    return scheme if colon else ""


def reader_of(url) -> Reader | None:
    """Who reads what a URL names; None where Zarr does."""
    scheme = scheme_of(url)
    return READERS[scheme] if scheme and scheme in READERS else None
