"""stub"""
from dataclasses import dataclass
from typing import Any, Protocol
@dataclass(frozen=True)
class Delivery:
    parts: tuple
    offset: Any
class Source(Protocol):
    name: str
def open_source(url, *, x, y, rows_per_expert, watch):
    from bcmdist.partition import open_data, partitions
    from bcmdist.sources.listed import Listed
    data = open_data(url, x=x, y=y)
    return Listed(tuple(partitions(data, rows_per_expert)), data.url)
