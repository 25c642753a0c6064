"""Open the source of rows for a model, with the model's names, and find partitions that it cannot absorb."""

import os
from collections.abc import Callable
from typing import Any, cast

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition
from bcmdist.data.sources.open import Source, open_source
from bcmdist.errors import BcmdistError, InvalidOption
from bcmdist.experts.limits import refuse_large_expert
from bcmdist.runtime.interface import Runtime


def source_of(snapshot: Snapshot, url: Location, *, watch: bool = False, **options: Any) -> Source:
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
        ledger=snapshot.ledger,
        **options,
    )


def unfit(snapshot: Callable[[], Snapshot], runtime: Runtime, part: Partition) -> BcmdistError | None:
    """The error that keeps a model from absorbing a partition on a runtime; None if it can be absorbed.

    snapshot : returns the newest one
    """
    newest = snapshot()
    try:
        newest.refuse_unlike([part])
        newest.model.refuse_unknown_errors(part.data)
        refuse_large_expert([part], newest.model.shared, runtime, newest.model.likelihood)
    except BcmdistError as error:
        return error
    return None


def as_source(snapshot: Snapshot, source: Any) -> Source:
    """A source for the model of a snapshot: an opened one as it is, or that at a path or URL.

    Raises
    ------
    InvalidOption
        It is neither.
    """
    if isinstance(source, str | os.PathLike):
        return source_of(snapshot, source)
    if not hasattr(source, "read") or not hasattr(source, "ack"):
        raise InvalidOption(
            f"source: expected a path, a URL or an opened source, got {type(source).__name__}; for rows in memory use "
            "partial_fit(X, y)"
        )
    return cast(Source, source)
