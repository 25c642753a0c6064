"""Open the source of rows for a model, with the model's names of arrays, columns and classes."""

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source, open_source


def source_of(snapshot: Snapshot, url, *, watch=False, **options) -> Source:
    """Open a URL as a source of rows for a model. Ingesters of one model form a group that shares a stream's entries.

    Parameters
    ----------
    watch : whether the data may still grow
    options : further options of `open_source`

    Raises
    ------
    InvalidOption, MissingExtra
    """
    model, names = snapshot.model, {"x": snapshot.model.x_name, "y": snapshot.model.y_name}
    return open_source(
        url,
        **names,
        schema=model.schema,
        rows_per_expert=snapshot.facts.survey.rows_per_expert,
        watch=watch,
        group=f"bcmdist-{snapshot.identity}",
        offsets=snapshot.offsets,
        ledger=(entry.key for entry in snapshot.ledger),
        **options,
    )
