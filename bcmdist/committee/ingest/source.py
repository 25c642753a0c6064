"""The source of rows that a model is to absorb: with its names of arrays, columns and classes."""

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source, open_source


def source_of(snapshot: Snapshot, url, *, watch=False, **options) -> Source:
    """What is at a URL as a source for a model; ingesters of one model share the entries of a stream.

    Parameters
    ----------
    watch : it may grow
    options : further ones of `open_source`

    Raises
    ------
    InvalidOption, MissingExtra
    """
    model, names = snapshot.model, {"x": snapshot.model.x_name, "y": snapshot.model.y_name}
    return open_source(
        url,
        **names,
        schema=model.schema,
        rows_per_expert=snapshot.facts.rows_per_expert,
        watch=watch,
        group=f"bcmdist-{snapshot.identity}",
        offsets=snapshot.offsets,
        ledger=(entry.key for entry in snapshot.ledger),
        **options,
    )
