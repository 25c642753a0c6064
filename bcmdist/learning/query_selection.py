"""Choose the query points, and how many.

All methods have one interface: they take sampled rows in scaled units and estimates of the latent f at these rows,
and return points. "kmeans" and "random" use the inputs only, "pivoted" also the prior, "evidence" and "sggp" also the
targets. "kmeans" also covers inputs of future predictions and, with few inputs, gaps between rows. The other methods
give starting points for `bcmdist.learning.evidence_refinement`.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import POINTS_PER_DEGREE
from bcmdist.errors import InvalidOption
from bcmdist.learning.gap_points import gap_places
from bcmdist.learning.greedy import LEAST_GAP, ConditionalVariance, greedy_evidence, greedy_posterior
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.runtime.threads import one_thread

KMEANS_ITERATIONS = 25  # the committee needs spread-out points, not the optimal clustering
SPREADING_ITERATIONS = 10  # for centres that are already spread out, after some were removed

# Maximum share of the query points in gaps: with more, the committee alone predicts worse where rows are clustered.
MOST_IN_GAPS = 0.25

# Minimum, maximum and step of the size of an automatic query set. With more points the committee costs more than it
# gains over local prediction; arbitrary.
LEAST_QUERY, MOST_QUERY, QUERY_STEP = 100, 2000, 50

# Rows from which the degrees of freedom of all rows are estimated: takes a second or two. More are not needed: an
# estimate of half as many degrees as rows already gives the maximum number of points.
DEGREES_ROWS = 2000


# A query value is dropped if all rows together hold less information than this about the value given the others, in
# units of its prior precision: as much as a shift of a tenth of a standard deviation.
LEAST_INFORMATION = 0.01


def duplicate_share(sample, kernel, noise, rows) -> float:
    """Share of the mean variance below which a query value counts as determined by the others, for `rows` rows of data.

    The rows determine a value of variance s with a precision of at most rows / noise. The value is dropped if
    s rows / noise is below `LEAST_INFORMATION`.
    """
    least_share = LEAST_INFORMATION * np.min(noise) / (rows * kernel.diagonal(sample).mean())
    return float(np.clip(least_share, linalg.LEAST_DUPLICATE_SHARE, linalg.DUPLICATE_SHARE))


def select_points(
    sample, count, *, kernel: Kernel, method="kmeans", targets=None, noise=None, rows=None, places=None, seed=0
) -> np.ndarray:
    """At most `count` query points from sampled rows, by one of `QUERY_METHODS`.

    A point is dropped if its value of f is determined by those of the others (for greedy methods: those chosen before),
    up to double precision or, if the noise is given, up to the precision with which all rows together determine it.

    Parameters
    ----------
    sample : (n, D)
        Rows in scaled units.
    kernel : Kernel
        With its final hyper-parameters.
    targets, noise : (n, C), (n,)
        Used by "evidence" and "sggp": see `working_targets`, `Likelihood.noise`.
    rows : number of rows of the data from which the sample was drawn
    places : (m, D)
        Inputs of future predictions, for "kmeans": together they weigh as much as the sampled rows.

    Returns
    -------
    (Q, D) with Q <= min(count, n + m)

    Raises
    ------
    InvalidOption
        The method is unknown, lacks its targets or takes no places, or the kernel is zero at all rows.
    """
    if method not in CHOOSERS:
        raise InvalidOption(f"query method: expected one of {', '.join(CHOOSERS)}, got {method!r}; give one")
    if not np.any(kernel.diagonal(sample) > 0):
        raise InvalidOption("kernel: expected a positive variance at some rows, got zero at all; choose another")
    share = linalg.DUPLICATE_SHARE if noise is None else duplicate_share(sample, kernel, noise, rows or len(sample))
    if places is not None and method not in PLACED:
        raise InvalidOption(
            f"query method: expected {' or '.join(PLACED)} with places, got {method!r}; leave out one of them"
        )
    places = sample[:0] if places is None else places
    points = CHOOSERS[method](sample, targets, count, kernel, noise, share, seed, places)
    prior = kernel.diagonal(sample)
    if np.any(kernel.diagonal(points) > share * prior.mean()):
        return points
    return sample[[int(prior.argmax())]]  # f is known at all points, as at the centre of rows with a linear kernel


def _independent(points, kernel, share):
    """Return the points without those that the others determine."""
    return points[linalg.independent_rows(kernel.cross(points, points), share)]


def _random(sample, targets, count, kernel, noise, share, seed, places):
    """Random rows, drawn without replacement."""
    points = np.unique(sample, axis=0)
    if count < len(points):
        points = points[np.random.default_rng(seed).choice(len(points), count, replace=False)]
    return _independent(points, kernel, share)


def _kmeans(sample, targets, count, kernel, noise, share, seed, places):
    """Centres of k-means in the metric of the kernel's lengthscales, for rows, places and gaps between rows.

    Where rows observe several outputs, each centre is a point of each output.
    """
    outputs, unit = kernel.output_columns(sample.shape[1]), metric(kernel, sample.shape[1])
    if len(outputs):
        others, each = np.delete(np.arange(sample.shape[1]), outputs), max(1, count // len(outputs))
        centres = _dispersed_centres(sample[:, others], each, unit[others], seed, places[:, others])
        points = np.empty((len(centres) * len(outputs), sample.shape[1]))
        points[:, others] = np.repeat(centres, len(outputs), axis=0)
        points[:, outputs] = np.tile(np.eye(len(outputs)), (len(centres), 1))
        points = points[:count]
    else:
        points = _dispersed_centres(sample, count, unit, seed, places)
    return _independent(_on_levels(points, sample, kernel), kernel, share)


def _dispersed_centres(sample, count, unit, seed, places):
    """Centres (Q, D) of k-means, in units of a metric, for rows, places and gaps between rows."""
    rows, covered = np.unique(sample, axis=0), np.unique(places, axis=0)
    points = np.concatenate([rows, covered])
    if count < len(points):
        weight = np.repeat([1.0, len(rows) / max(len(covered), 1)], [len(rows), len(covered)])
        centres = _centres(points / unit, count, seed, weight=weight)
        gaps = gap_places(rows / unit, centres, seed)
        in_gaps = min(round(count * min(len(gaps) / len(rows), MOST_IN_GAPS)), len(gaps))
        if in_gaps:  # the other centres spread out again from their positions
            kept = np.random.default_rng(seed).choice(count, count - in_gaps, replace=False)
            some = {"init": centres[kept], "max_iter": SPREADING_ITERATIONS}
            centres = _centres(points / unit, count - in_gaps, seed, weight=weight, **some)
            centres = np.concatenate([centres, _centres(gaps, in_gaps, seed)])
        points = centres * unit
    return points


def _on_levels(points, rows, kernel):
    """Return the points with each number that stands for a level replaced by the nearest level of a row."""
    for column in kernel.level_columns(points.shape[1]):
        levels = np.unique(rows[:, column])
        middles = 0.5 * (levels[1:] + levels[:-1])
        points[:, column] = levels[np.searchsorted(middles, points[:, column])]
    return points


def _centres(points, count, seed, *, weight=None, init="random", max_iter=KMEANS_ITERATIONS):
    """Centres of k-means of points (n, D) with weights (n,), started from given or random centres."""
    from sklearn.cluster import KMeans  # takes a second to import

    means = KMeans(count, n_init=1, init=init, max_iter=max_iter, random_state=seed)
    with one_thread():  # limits OpenMP, which is loaded by the import
        return means.fit(points, sample_weight=weight).cluster_centers_


def _pivoted(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily choose the row of largest variance given those chosen: pivoted Cholesky, O(n count^2), without K."""
    conditional = ConditionalVariance(sample, count, kernel, share)
    while not conditional.full and conditional.variance.max() > conditional.least:
        row = int(conditional.variance.argmax())
        conditional.choose(row, conditional.columns([row])[:, 0])
    return sample[conditional.chosen]


def _evidence(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily choose the row that raises the evidence most; see `greedy_evidence`."""
    _refuse_no_targets("evidence", targets, noise)
    return sample[greedy_evidence(sample, targets, count, kernel, noise, seed, share=share)[0]]


def _posterior(sample, targets, count, kernel, noise, share, seed, places, *, gap=LEAST_GAP):
    """Greedily choose the row that raises the posterior most, until the gain is small; see `greedy_posterior`."""
    _refuse_no_targets("sggp", targets, noise)
    return sample[greedy_posterior(sample, targets, count, kernel, noise, seed, share=share, gap=gap)[0]]


def _refuse_no_targets(method, targets, noise):
    if targets is None or noise is None:
        raise InvalidOption(
            f"query method {method}: expected targets and their noise, got none; give them, or choose pivoted or kmeans"
        )


CHOOSERS: dict[str, Callable] = {
    "kmeans": _kmeans,
    "random": _random,
    "pivoted": _pivoted,
    "evidence": _evidence,
    "sggp": _posterior,
    "optimised": _kmeans,
    "hpev-sgev": _evidence,
    "hpev-sggp": partial(_posterior, gap=0.0),  # always `count` points, so that evidences are comparable
}
# Methods that maximise the evidence of the whole committee, and the methods that choose their starting points.
BEGUN = {"optimised": "kmeans", "hpev-sgev": "evidence", "hpev-sggp": "sggp"}
ALTERNATED = ("hpev-sgev", "hpev-sggp")  # choose points again after the hyper-parameters have climbed
TARGETED = ("evidence", "sggp", *ALTERNATED)  # use the targets
STOPPING = ("sggp",)  # may stop with fewer points than requested
QUERY_METHODS = tuple(CHOOSERS)
PLACED = ("kmeans", "optimised")  # points need not be rows, so places can be used


def has_working_targets(likelihood: Likelihood) -> bool:
    """Whether rows can be regressed on as if they had Gaussian noise: Gaussian and class likelihoods.

    Counts, lifetimes and data with outliers are too far from a Gaussian around latent values of 0.
    """
    return likelihood.normal or likelihood.categorical


def working_targets(likelihood, obs, mean, X) -> np.ndarray | None:
    """Regression targets (n, C): those of the likelihood (`Likelihood.targets`) less their trend.

    The trend is the prior mean, fitted by least squares. None if `has_working_targets` is false.
    """
    if not has_working_targets(likelihood):
        return None
    y = likelihood.targets(obs).reshape(len(obs), -1)
    H = mean.design(X)
    return y - H @ np.linalg.lstsq(H, y, rcond=None)[0]


def estimated_degrees(sample, noise, rows, kernel) -> float:
    """Estimate P_eff = tr K (K + Psi)^-1 of N = `rows` rows and one process from n rows (GBCM paper, 6.1; SYSTEMS I.8).

    A sampled row represents N / n rows, as if its noise variance were times n / N: sum lam / (lam + psi) over
    the eigenvalues of the sample times N / n, which estimate those of all rows (Nystroem). The estimate is at most n
    and too low near n: by a fifth at half of n.

    Parameters
    ----------
    sample : (n, D)
    noise : (n,)
    """
    n = len(sample)
    root = np.sqrt(rows / n / noise)
    B = linalg.identity_plus_scaled(kernel.cross(sample, sample), root)
    return float(n - np.trace(linalg.inverse(linalg.cholesky(B, name="I + w^1/2 K w^1/2"))))


def automatic_count(sample, noise, rows, kernel, fits: Callable[[int], bool]) -> tuple[int, float]:
    """Return the number of query points for `rows` rows, and the estimated degrees of freedom of these rows.

    `POINTS_PER_DEGREE` points per degree, in steps of `QUERY_STEP`, between `LEAST_QUERY` and `MOST_QUERY`, at most
    one per row, and no more than fit in memory.

    Parameters
    ----------
    sample : (n, D)
        Sampled rows in scaled units, in random order: the first `DEGREES_ROWS` are used.
    noise : (n,)
    fits : whether an expert with this number of query points fits in memory
    """
    degrees = estimated_degrees(sample[:DEGREES_ROWS], noise[:DEGREES_ROWS], rows, kernel)
    steps = int(np.ceil(POINTS_PER_DEGREE * degrees / QUERY_STEP))
    count = min(max(steps * QUERY_STEP, LEAST_QUERY), MOST_QUERY, rows)
    while count > LEAST_QUERY and not fits(count):
        count -= QUERY_STEP
    return count, degrees
