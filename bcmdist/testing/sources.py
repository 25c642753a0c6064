"""Conformance of sources and predictors: restarts at offsets, row-wise predictions."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.testing.checked import SOLVED, Checked, seeded

MOST_READ = 10_000  # limit for the deliveries of a source under test


def check_source(open_source: Callable[[], Any], *, most: int = 2) -> None:
    """Check the contract of `Source` for reads, offsets and acknowledgements. The source must not change meanwhile.

    Parameters
    ----------
    open_source : opens the source, which must have a few deliveries; called several times, to simulate restarts
    most : partitions to request at a time

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.testing import check_source
    >>> bcmdist.write_dataset("checked.zarr", {"X": X, "y": y})
    >>> check_source(lambda: gbcm.source("checked.zarr"))
    """
    source = open_source()
    checked = Checked(f"source {source.name}", type(source).__name__)
    checked.holds(urlsplit(source.name).password is None, "`name`", "a URL without a password", "one with it")
    found = _read_on(checked, source, None, most)
    checked.holds(found, "`read(None, most)`", "deliveries", "none", "check it where there are some")
    keys = [key for one in found for key in _keys(one)]
    checked.holds(len(set(keys)) == len(keys), "keys of one reading", "different ones", keys)
    for again in (source, open_source()):
        remedy = "let what is delivered follow from the offset alone, not from what was read or acknowledged before"
        for number in (None, 0, len(found) - 1):
            start = 0 if number is None else number + 1
            after = None if number is None else found[number].offset
            read_again = sorted(key for one in _read_on(checked, again, after, most) for key in _keys(one))
            expected = sorted(key for one in found[start:] for key in _keys(one))
            checked.holds(
                read_again == expected, f"`read({after}, {most})` once more", str(expected), read_again, remedy
            )
        lags = [again.lag(None), again.lag(found[-1].offset)]
        fine = lags[0] is None or (lags[0] >= 0 and lags[1] in (None, 0))
        checked.holds(fine, "`lag` at the start and the end", "None, or at least 0 and then 0", lags)
        for _ in range(2):  # as after a lost response
            again.ack(found[0].offset, _keys(found[0]))
    for part, rows in read_all([part for one in found for part in one.parts]):
        checked.holds(len(rows.X) == part.rows, f"rows of {part.key}", str(part.rows), len(rows.X))
        ((_, named),) = read_all([from_key(part.key, y=part.data.y)])
        what = f"rows of the key {part.key}, as `forget` reads them"
        checked.holds(named.digest == rows.digest, what, "the same", "others")
    for one in (source, again):
        one.close()


def _keys(delivery: Any) -> list[str]:
    return [part.key for part in delivery.parts] or [delivery.bad[0]]


def _read_on(checked: Checked, source: Any, after: Any, most: int) -> list[Any]:
    """Return all deliveries after an offset; each offset is converted to JSON and back, as in a commit."""
    found: list[Any] = []
    while some := source.read(after, most):
        found.extend(some)
        keys = [key for one in some for key in _keys(one)]
        checked.holds(len(keys) <= most, f"`read(after, {most})`", f"at most {most} partitions", len(keys))
        checked.holds(len(found) < MOST_READ, "`read`", "an end where nothing is added", f"{len(found)} deliveries")
        after = json.loads(json.dumps(some[-1].offset, allow_nan=False))
    return found


def check_predictor(predictor: Any, snapshot: Any, X: np.ndarray | None = None) -> None:
    """Check a `Predictor`: row-wise moments, and equal results from a snapshot and from its commit.

    Parameters
    ----------
    predictor : the class
    snapshot : of a committed model that the predictor supports, such as `GBCM.load(...).snapshot`
    X : scaled inputs (n, D); by default seeded ones

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.prediction.interface import Fitted
    >>> from bcmdist.testing import check_predictor
    >>> check_predictor(Fitted, gbcm.snapshot)
    """
    checked = Checked(f"predictor {predictor.__name__}", predictor.__name__)
    X = seeded(5, snapshot.model.inputs) if X is None else X
    predictor.refuse(snapshot)
    need = predictor.memory(snapshot)
    checked.holds(need.bytes > 0 and need.what and need.remedy, "`memory`", "bytes, what and remedy", need)
    mean, variance = (made := predictor.of_snapshot(snapshot)).latent(X)
    checked.holds(len(mean) == len(variance) == len(X), "`latent`", f"{len(X)} rows", len(mean))
    finite = np.all(np.isfinite(mean)) and np.all(np.asarray(variance) >= 0)
    checked.holds(finite, "`latent`", "finite means and variances of at least 0", (mean, variance))
    first, stored = made.latent(X[:1]), predictor.of_commit(snapshot.reference).latent(X)
    for number, (moment, here) in enumerate({"mean": mean, "variance": variance}.items()):
        remedy = "let no row depend on others that are predicted with it"
        checked.equal(f"{moment} of a row by itself", first[number], here[:1], remedy, rtol=SOLVED)
        checked.equal(f"{moment} of `of_commit`, against `of_snapshot`", stored[number], here, rtol=SOLVED)
