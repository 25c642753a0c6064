"""The source of rows that a model is to hear: with its names of arrays, columns and classes."""

import hashlib

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source, open_source


def source_of(snapshot: Snapshot, url, *, watch=False, **options) -> Source:
    """What is at a URL as a source for a model; consumers of a stream that hear for one model form a group.

    Parameters
    ----------
    watch : it may grow
    options : further ones of `open_source`

    Raises
    ------
    InvalidOption, MissingExtra
    """
    model, group = snapshot.model, f"bcmdist-{hashlib.sha256(snapshot.url.encode()).hexdigest()[:12]}"
    names, rows = {"x": model.x_name, "y": model.y_name}, snapshot.facts.rows_per_expert
    return open_source(url, **names, schema=model.schema, rows_per_expert=rows, watch=watch, group=group, **options)
