"""Drift: whether arriving partitions still look as the model expects, as figures and as a verdict."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bcmdist.prediction.scoring import excess_loss
from bcmdist.prediction.scoring.excess_loss import Expected
from bcmdist.storage.entry import CLASS_SCORES, NUMBER_SCORES, Entry
from bcmdist.storage.ledger import Ledger

# Share of the newest arrivals that are compared with all earlier ones, and the least number of them.
RECENT_SHARE = 0.1


LEAST_COMPARED = 10
# Arrivals that a report looks at, the newest: it takes about as long however old a model is.
MOST_ARRIVALS = 10_000


NOT_COMPARED = (
    "not known yet: there was nothing to compare these arrivals with; later ones are compared, once a fit or "
    f"{excess_loss.WITHHELD} partitions have been absorbed"
)


ONE_COMPARED = (
    "not known yet: one partition that was absorbed before is too few to compare these arrivals with; they are not "
    "much worse than the model predicts of its own errors"
)


def arrival_scores(scores) -> tuple[float, ...]:
    """The figures of `Entry.arrival` from a partition's scores: `NUMBER_SCORES`, or `CLASS_SCORES` for classes.

    Empty if a figure is not finite.
    """
    t, n = scores.totals, float(scores.totals["rows"])
    log_score = np.nan_to_num(-t["negative_log"] / n)
    if "right" in t:
        found = np.array([log_score, t["right"] / n])
    else:
        middle = (np.arange(len(t["pit"])) + 0.5) / len(t["pit"])
        found = np.array([log_score, t["covered"][-1] / n, t["pit"] @ middle / max(1.0, t["pit"].sum())])
    return tuple(found.tolist()) if np.all(np.isfinite(found)) else ()


def drift_in(ledger: Ledger, baseline: Expected | None) -> dict[str, Any] | None:
    """`drift_report` of the last `MOST_ARRIVALS` arrivals in a ledger."""
    entries = ledger.latest_arrivals(MOST_ARRIVALS)
    return drift_report(entries, baseline, before=ledger.arrived - len(entries))


def drift_report(entries: Iterable[Entry], baseline: Expected | None, *, before=0) -> dict[str, Any] | None:
    """`summary` with a verdict, from the first arrival on; None if nothing has arrived.

    Parameters
    ----------
    baseline : expected excess loss of arrivals; None if it was not estimated
    before : number of arrivals before these

    Returns
    -------
    The figures of `summary` (nan where it has none), and

    verdict : text
    worse : whether arrivals are now worse than expected
    since : number of the arrival, from 1, since which they are worse; None if they are not
    last_since : number of the arrival at which the last worse period began, even if it has ended; None without any
    z : sum of the standardised excess losses of the n partitions that the verdict is about, over sqrt(n). These are the
        partitions since the change, a single outlier, or the newest `LEAST_COMPARED` that are as expected. Values up to
        about slack sqrt(n) are as expected, because the expected excess loss has an error that does not average out
        (`Expected.slack`). nan if there is nothing to compare with
    expected : mean figures of the withheld partitions that arrivals are compared with, and their number
        (`bcmdist.prediction.scoring.excess_loss`); None if no arrival could be compared
    """
    entries = [entry for entry in entries if entry.arrival]
    if not entries:
        return None
    table = arrivals(entries)
    names = _names(table)
    unknown = dict.fromkeys(names, float("nan")) | {"log_score_change": float("nan")}
    recent = dict(zip((f"{name}_recent" for name in names), table[-LEAST_COMPARED:].mean(axis=0).tolist(), strict=True))
    few = {"arrivals": before + len(entries), "recent": min(len(entries), LEAST_COMPARED)} | unknown | recent
    found = summary(entries)
    found = found and found | {"arrivals": before + len(entries)}
    return (found or few) | _verdict(entries, baseline or excess_loss.UNKNOWN, names, before + 1)


def _verdict(entries, base: Expected, names, first) -> dict[str, Any]:
    judged = [(number, entry) for number, entry in enumerate(entries, start=first) if entry.excess_loss]
    shown: dict[str, Any] = {"worse": False, "since": None, "last_since": None}
    if not judged:
        return {"verdict": NOT_COMPARED} | shown | {"z": float("nan"), "expected": None}
    expected = dict(zip(names, base.figures, strict=False))
    z = base.standardised([entry.excess_loss for _, entry in judged])
    changes = excess_loss.changes(z, base.slack)
    outliers = excess_loss.outliers(base, z, changes)
    begun = [*(change.start for change in changes), *outliers]
    text, begin = _calm(judged, z, changes, outliers)
    begin = max(begin, len(z) - LEAST_COMPARED)
    worse = ""
    if changes and changes[-1].stop is None:
        begin = changes[-1].start
        worse = "worse than expected since {}: {}, z = {:.1f}"
    elif z[-1] > base.slack + excess_loss.LARGEST_STEP:  # a second one like this would be a change
        begin = len(z) - 1
        far = "far " if begin in outliers else ""
        worse = far + "worse than expected in {} alone: {}, z = {:.1f}; one more will tell"
    standard_errors = float(z[begin:].sum() / np.sqrt(len(z[begin:])))
    if worse:
        held = _coverage_text([entry for _, entry in judged[begin:]], names, expected)
        text = worse.format(_named(judged[begin]), held, standard_errors)
    elif base.partitions == 1 and not begun:
        text, standard_errors = ONE_COMPARED, float("nan")
    shown["worse"] = begin in begun and bool(worse)
    shown["since"] = judged[begin][0] if shown["worse"] else None
    shown["last_since"] = judged[max(begun)][0] if begun else None
    return {"verdict": text} | shown | {"z": standard_errors, "expected": {"partitions": base.partitions} | expected}


def _calm(judged, z, changes, outliers):
    """Verdict where arrivals are now as expected, and the index of the first such arrival."""
    if outliers and (not changes or outliers[-1] > changes[-1].start):
        *before, last = outliers
        others = f", as in {len(before)} before" if before else ""
        since = judged[min(last + 1, len(judged) - 1)][0]
        was = f"far worse in {_named(judged[last])} alone (z = {z[last]:.1f}){others}"
        return f"as expected since partition {since}, {was}", last + 1
    if changes and changes[-1].stop:
        start, stop = (judged[k][0] for k in (changes[-1].start, changes[-1].stop - 1))
        return f"as expected since partition {stop}, worse from partition {start} on before", changes[-1].stop - 1
    return "as expected", 0


def _named(number_entry):
    number, entry = number_entry
    return f"partition {number} ({entry.key})"


def _coverage_text(entries, names, expected):
    """Accuracy (classes) or interval coverage (numbers) of arrivals and its expected value, as text."""
    share = np.mean([entry.arrival[1] for entry in entries])
    text = f"accuracy was {share:.2f}" if names == CLASS_SCORES else f"95 % intervals held {share:.2f} of the rows"
    return f"{text}, {expected[names[1]]:.2f} of rows withheld before" if expected else text


def _names(table):
    return NUMBER_SCORES if table.shape[1] == len(NUMBER_SCORES) else CLASS_SCORES


def arrivals(entries: Iterable[Entry]) -> np.ndarray:
    """Figures of the arrivals in commit order, (n, 2) for classes or (n, 3) for numbers."""
    return np.array([entry.arrival for entry in entries if entry.arrival])


def summary(entries: Iterable[Entry]) -> dict[str, float] | None:
    """Mean figures of the newest arrivals and of all earlier ones; None if there are too few.

    `log_score_change` is the difference of the mean log scores in its standard errors; if it is far below zero, the
    data have drifted away from the model.
    """
    table = arrivals(entries)
    recent = max(LEAST_COMPARED, round(RECENT_SHARE * len(table)))
    if len(table) < 2 * recent:
        return None
    old, new = table[:-recent], table[-recent:]
    error = np.sqrt(old[:, 0].var(ddof=1) / len(old) + new[:, 0].var(ddof=1) / len(new))
    names = _names(table)
    shown: dict[str, float] = {"arrivals": len(table), "recent": recent}
    for name, before, now in zip(names, old.mean(axis=0), new.mean(axis=0), strict=True):
        shown |= {name: float(before), f"{name}_recent": float(now)}
    shown["log_score_change"] = float((new[:, 0].mean() - old[:, 0].mean()) / error) if error > 0 else 0.0
    return shown
