"""How well a fitted model predicts rows that are left out, compared with simple baselines and boosted trees.

The model predicts each of these rows from all other rows. The baselines predict the same rows from a sample of the
other training rows; of few rows in turns, so that baselines miss at most a quarter of them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bcmdist.api.comparison.baselines import Training, baselines, sampled, training_at
from bcmdist.api.comparison.remarks import COMPARED
from bcmdist.committee.measurements import Accuracy
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.errors import BcmdistError
from bcmdist.linalg.arrays import IntArray
from bcmdist.prediction.interface import corrected_of
from bcmdist.prediction.leave_one_out import sites_repeat
from bcmdist.prediction.measuring.left_out_errors import LeftOutPredictions, PredictLeftOut
from bcmdist.prediction.measuring.measurement import AGAIN, fitted_partitions, some_partitions
from bcmdist.prediction.scored_rows import Judged, score_latent
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference

CANDIDATES = 1200  # rows that are left out, approximately
PARTITIONS = 8  # that the committee leaves rows out of
JUDGED = 500  # least number of rows that are judged, where there are so many; of large data half of the candidates
SHARE = 0.25  # largest share of the rows that baselines miss in a turn
LEAST = 30  # with fewer rows nothing is compared
DIGITS = 6  # significant ones that are stored: sums in another order agree


def with_accuracy(snapshot: Snapshot, runtime: Runtime) -> Snapshot:
    """The snapshot with the fact `accuracy`, which remains to be committed.

    Unchanged if it is up to date, rows cannot be read, or no leave-one-out predictions can be made.
    """
    rows, before = snapshot.committee.total.rows, snapshot.facts.errors.accuracy
    if rows < LEAST or (before and rows < AGAIN * before.absorbed) or not _possible(snapshot):
        return snapshot
    stages = StageTimer()
    with stages("baselines"):
        try:
            found = _accuracy(snapshot, runtime)
        except (BcmdistError, OSError):  # rows that cannot be read here: a comparison must not fail a fit
            return snapshot
    return snapshot.changed(stages=stages, accuracy=found) if found else snapshot


def _possible(snapshot: Snapshot) -> bool:
    """Whether leave-one-out predictions of the default method can be made."""
    facts, likelihood = snapshot.facts, snapshot.model.likelihood
    measured = facts.errors.noise is not None and likelihood.corrected_by == "errors"  # also by leave-one-out
    if snapshot.model.outputs:  # whose errors have different units
        return False
    if snapshot.model.input_errors is not None or not (facts.expert == "bcm" or measured):
        return False
    if facts.method == "local":
        return facts.cells.surrounded
    one = not (likelihood.per_class or likelihood.needs_calibration)
    return facts.method == "committee" and (likelihood.exact or (one and sites_repeat(facts)))


def _accuracy(snapshot: Snapshot, runtime: Runtime) -> Accuracy | None:
    left_out = _left_out(snapshot, runtime)
    if left_out is None:
        return None
    available, candidates = sum(part.rows for part in _partitions(snapshot)), len(left_out.number)
    count = min(
        candidates, max(JUDGED, min(candidates // 2, int(SHARE * available)))
    )  # baselines learn from the others
    judged = left_out[np.sort(np.random.default_rng(0).permutation(candidates)[:count])]
    latent = judged.mean, judged.variance
    rows = score_latent(corrected_of(snapshot), judged.X, judged.obs, judged.number, latent)
    totals = rows.scores().summary()
    loss = next(name for name in COMPARED if name in totals)
    if not np.isfinite(totals[loss]):
        return None
    learning = _training(snapshot, left_out.number)
    power, weight = 2 if loss in ("weighted_rmse", "rmse") else 1, np.ones(len(rows))
    if loss == "weighted_rmse":
        weight = judged.obs.reliability**2
    found: dict[str, float] = {}
    learned_from = 0
    turns = int(np.ceil(count / (SHARE * available)))
    for some, training in _turns(rows, *learning, turns):
        learned_from = max(learned_from, len(training.y))
        for name, scores in baselines(snapshot, training, rows[some]).items():
            found[name] = found.get(name, 0.0) + weight[some].sum() * scores[loss] ** power / weight.sum()
    means = {name: _rounded(value ** (1.0 / power)) for name, value in found.items() if np.isfinite(value)}
    figures: dict[str, Any] = {
        "loss": loss,
        "model": _rounded(totals[loss]),
        "baselines": means,
        "learned_from": learned_from,
    }
    return Accuracy(rows=len(rows), absorbed=snapshot.committee.total.rows, **figures) if means else None


def _partitions(snapshot: Snapshot) -> list[Partition]:
    """The partitions of a fit in the data set that has most of its rows."""
    parts, rows = fitted_partitions(snapshot), Counter[Dataset]()
    for part in parts:
        rows[part.data] += part.rows
    return [part for part in parts if part.data == rows.most_common(1)[0][0]]


def _left_out(snapshot: Snapshot, runtime: Runtime) -> LeftOutPredictions | None:
    """Leave-one-out predictions of about `CANDIDATES` rows of the fit, in the order of their numbers."""
    facts, local = snapshot.facts, snapshot.facts.method == "local"
    parts = _partitions(snapshot)
    if not parts:
        return None
    cells = max(1, round(CANDIDATES / (facts.cells.core or 1)))
    chosen = some_partitions(parts, min(cells if local else PARTITIONS, len(parts)))
    each = max(1, round(cells / len(chosen))) if local else int(np.ceil(CANDIDATES / len(chosen)))
    place = facts.linearisation.linearised_at
    at = BlobReference(snapshot.url, place) if place else None
    with snapshot.drafted() as readable:
        found: LeftOutPredictions = runtime.sum(
            PredictLeftOut(readable.reference, each, local, local, at), chosen, label="left out"
        )
    return found[np.argsort(found.number)]


def _training(snapshot: Snapshot, left_out: IntArray) -> tuple[np.ndarray, Training]:
    """Numbers (n,) of training rows and these rows: a sample of those absorbed, and those `left_out`."""
    parts = _partitions(snapshot)
    data = parts[0].data
    edges = np.sort([(part.start, part.stop) for part in parts], axis=0)
    sample = sampled(data.rows)
    within = np.searchsorted(edges[:, 0], sample, side="right") - 1
    sample = sample[(within >= 0) & (sample < edges[np.maximum(within, 0), 1])]
    number = np.union1d(sample, left_out)
    return number, training_at(snapshot, data, number, "training rows")


def _turns(rows: Judged, number: IntArray, training: Training, turns: int) -> Iterator[tuple[np.ndarray, Training]]:
    """Positions of the rows that are judged in each turn, and the training rows without these."""
    for turn in np.array_split(np.random.default_rng(1).permutation(len(rows)), turns):
        if len(turn):
            yield np.sort(turn), training[~np.isin(number, rows.number[turn])]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
