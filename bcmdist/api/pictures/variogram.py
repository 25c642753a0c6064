"""Variogram: half the mean squared difference of pairs of rows over their distance, beside what the kernel expects.

The empirical semivariogram of Matheron (1963); expected is, for the same pairs, the mean of

    (k(x, x) + k(x', x') + noise(x) + noise(x')) / 2 - k(x, x')

so that several lengthscales, kernels that are not stationary and noise that varies are compared as they are.
"""

from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import LINE, QUIET
from bcmdist.api.pictures.subject import Subject, target_name
from bcmdist.api.relevance import column_names
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.model import Model
from bcmdist.prediction.scored_rows import Judged

MOST_ROWS = 2_000  # more are sampled: two million pairs
BINS, LEAST_PAIRS = 20, 30  # distances of a curve; pairs of a bin that is drawn
FARTHEST = 0.5  # share of the largest distance up to which pairs are compared, as is usual
MOST_DIRECTIONS = 3  # inputs up to which each has its own panel
WITHIN = np.tan(np.pi / 8)  # a pair lies along an input if the others differ less than that times (22.5 degrees)


def variogram(subject: Subject) -> Any:
    """Draw the semivariogram of targets less the fitted prior mean, in their squared unit, and what the model expects.

    Up to three inputs: pairs along each of them. More: all pairs, over the distance in standard deviations of inputs.

    Raises
    ------
    InvalidOption
        Errors are not normal, targets are transformed, or there are several latent functions.
    """
    model = subject.snapshot.model
    if not model.normal or model.likelihood.processes > 1 or model.outputs:
        raise InvalidOption(
            f"--what variogram: expected one output with normal errors, got {model.error_name}; take --what residuals, "
            "or fit with --target-transform none"
        )
    rows = subject.judged[np.random.default_rng(0).permutation(len(subject.judged))[:MOST_ROWS]]
    predicted = subject.predicted(rows.X)
    noise = predicted["observation_variance"] - predicted["variance"]
    found, expected = semivariances(model, rows, noise)
    nugget = float(np.mean(noise))
    panels = directions(model, rows.X)
    title = f"Variogram of {target_name(subject)} less its mean: {min(len(rows), MOST_ROWS):,} rows of {subject.data}"
    figure, axes = paper.sheet(title, width=3.8 * len(panels) + 0.6, height=3.4, ncols=len(panels), squeeze=False)
    for axis, (label, distance) in zip(axes.ravel(), panels.items(), strict=True):
        centre, (observed, kernel), pairs = binned(distance, found, expected)
        axis.plot(
            centre, observed, "o", color=QUIET, markersize=4, label=f"data ({pairs.min():,} pairs or more a point)"
        )
        axis.plot(centre, kernel, color=LINE, label="kernel and noise")
        axis.axhline(nugget, color=LINE, linestyle=":", label=f"noise (nugget): {nugget:.3g}")
        axis.set(xlabel=label, ylabel="semivariance")
        axis.set_xlim(left=0.0)
        axis.set_ylim(bottom=0.0)
        axis.legend(fontsize="small", loc="lower right")
    return figure


def semivariances(model: Model, rows: Judged, noise: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Return half the squared differences of pairs of rows (P,), i < j by rows, and what the model expects of them.

    `noise`: variances of the errors of the rows (n,).
    """
    assert rows.obs is not None, "rows that are judged have targets"
    scale, Z = model.likelihood.units.latent_length(model.scaling.y_scale), model.scaling.inputs(rows.X)
    design, y = model.shared.mean.design(Z), rows.obs.y
    residual = scale * (y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) if design.shape[1] else scale * y
    kernel = model.shared.kernel
    sill = scale**2 * kernel.diagonal(Z) + noise
    first, second = np.triu_indices(len(rows), 1)
    expected = 0.5 * (sill[first] + sill[second]) - scale**2 * kernel.cross(Z, Z)[first, second]
    return 0.5 * (residual[first] - residual[second]) ** 2, expected


def directions(model: Model, X: FloatArray) -> dict[str, np.ndarray]:
    """Return distances of pairs of rows X (n, D) by the label of a panel; nan for pairs in other directions."""
    first, second = np.triu_indices(len(X), 1)
    D = X.shape[1]
    if D > MOST_DIRECTIONS:
        apart = model.scaling.inputs(X)
        squares = sum(((apart[first, d] - apart[second, d]) ** 2 for d in range(D)), start=np.zeros(len(first)))
        return {"distance, in standard deviations of inputs": np.sqrt(squares)}
    gaps = np.abs(X[first] - X[second])
    scaled = gaps / np.maximum(X.std(axis=0), np.finfo(float).tiny)
    found = {}
    for d, name in enumerate(column_names(model)):
        others = np.delete(scaled, d, axis=1)
        along = (others <= WITHIN * scaled[:, [d]]).all(axis=1)
        found[f"distance {'along' if D > 1 else 'in'} {name}"] = np.where(along, gaps[:, d], np.nan)
    return found


def binned(distance: FloatArray, *values: FloatArray) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Return mean distances (B,), means of values (B,) each, and numbers of pairs (B,), of bins with enough pairs."""
    seen = np.isfinite(distance)
    edges = np.linspace(0.0, FARTHEST * distance[seen].max(initial=0.0), BINS + 1)
    number = np.where(seen, np.searchsorted(edges, distance), BINS + 1)
    pairs = np.bincount(number, minlength=BINS + 2)[: BINS + 1]
    enough = pairs >= LEAST_PAIRS
    if not enough.any():
        raise InvalidOption(
            f"--what variogram: expected {LEAST_PAIRS} pairs of rows at similar distances, found fewer; give more rows"
        )

    def means(of: FloatArray) -> FloatArray:
        total = np.bincount(number, np.where(seen, of, 0.0), minlength=BINS + 2)[: BINS + 1]
        return total[enough] / pairs[enough]

    return means(distance), [means(one) for one in values], pairs[enough]
