"""Which points make the query set, and how many.

Every method has one interface: rows sampled from the data, in scaled units, and what they say of the latent f,
go in; points come out. "kmeans" and "random" look at the inputs alone, "pivoted" at the prior too, "evidence" and
"sggp" at the targets as well. "kmeans" also looks at places where predictions will be wanted, and of few inputs at gaps
between rows. Others are starting points for `bcmdist.learning.evidence_refinement`.
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
SPREADING_ITERATIONS = 10  # of centres that were spread, some of which are taken away

# Share of the query points that gaps may take: with more, the committee alone predicts worse where rows are clumped. On
# rows of three validation splits of heaton that mirror its gaps, RMSE .767, .937, 1.041 without any, .780, .875, .989
# with them (exponential kernel, 1000 points).
MOST_IN_GAPS = 0.25

# Least and most points, and the step, of an automatic query set. With more, the committee costs more than it
# gains over local prediction; arbitrary.
LEAST_QUERY, MOST_QUERY, QUERY_STEP = 100, 2000, 50

# Rows from which the degrees of freedom of all rows are estimated: a second or two, and enough, as an estimate of
# half as many gives the most points anyway.
DEGREES_ROWS = 2000


# Information about a query value, given the others, that the rows may hold where it is left out: a tenth of a standard
# deviation says as much.
LEAST_INFORMATION = 0.01


def duplicate_share(sample, kernel, noise, rows) -> float:
    """Share of the mean variance below which a query value is determined by others, as far as `rows` rows can tell.

    They know a value of variance s to rows / noise at best: s rows / noise is to be below `LEAST_INFORMATION`.
    """
    told = LEAST_INFORMATION * np.min(noise) / (rows * kernel.diagonal(sample).mean())
    return float(np.clip(told, linalg.LEAST_DUPLICATE_SHARE, linalg.DUPLICATE_SHARE))


def select_points(
    sample, count, *, kernel: Kernel, method="kmeans", targets=None, noise=None, rows=None, places=None, seed=0
) -> np.ndarray:
    """At most `count` query points from sampled rows, by one of `QUERY_METHODS`.

    Points which the others (or, where rows are chosen one by one, those before) already determine are dropped: to
    double precision or, where the noise is known, as far as all rows can tell.

    Parameters
    ----------
    sample : (n, D)
        Rows in scaled units.
    kernel : Kernel
        With its final hyper-parameters.
    targets, noise : (n, C), (n,)
        What "evidence" and "sggp" look at: see `working_targets`, `Likelihood.noise`.
    rows : how many rows there are, of which some were sampled
    places : (m, D)
        Where predictions will be wanted, for "kmeans": they weigh as much as the sampled rows.

    Returns
    -------
    (Q, D) with Q <= min(count, n + m)

    Raises
    ------
    InvalidOption
        The method has no such name, lacks its targets or takes no places, or the kernel is zero at all rows.
    """
    if method not in CHOOSERS:
        raise InvalidOption(f"query method: expected one of {', '.join(CHOOSERS)}, got {method!r}; give one")
    if not np.any(kernel.diagonal(sample) > 0):
        raise InvalidOption("kernel: expected a positive variance at some rows, it is zero at all; choose another one")
    share = linalg.DUPLICATE_SHARE if noise is None else duplicate_share(sample, kernel, noise, rows or len(sample))
    if places is not None and method not in PLACED:
        raise InvalidOption(
            f"query method: expected {' or '.join(PLACED)} with places, got {method!r}; leave out one of them"
        )
    places = sample[:0] if places is None else places
    return CHOOSERS[method](sample, targets, count, kernel, noise, share, seed, places)


def _independent(points, kernel, share):
    """Without the points that the others determine."""
    return points[linalg.independent_rows(kernel.cross(points, points), share)]


def _random(sample, targets, count, kernel, noise, share, seed, places):
    """Rows drawn without replacement."""
    points = np.unique(sample, axis=0)
    if count < len(points):
        points = points[np.random.default_rng(seed).choice(len(points), count, replace=False)]
    return _independent(points, kernel, share)


def _kmeans(sample, targets, count, kernel, noise, share, seed, places):
    """Centres of k-means in the metric of the kernel's lengthscales: of rows and places, and of gaps between rows."""
    rows, wanted, unit = np.unique(sample, axis=0), np.unique(places, axis=0), metric(kernel, sample.shape[1])
    points = np.concatenate([rows, wanted])
    if count < len(points):
        weight = np.repeat([1.0, len(rows) / max(len(wanted), 1)], [len(rows), len(wanted)])
        centres = _centres(points / unit, count, seed, weight=weight)
        gaps = gap_places(rows / unit, centres, seed)
        in_gaps = min(round(count * min(len(gaps) / len(rows), MOST_IN_GAPS)), len(gaps))
        if in_gaps:  # the others spread again, from where they were
            kept = np.random.default_rng(seed).choice(count, count - in_gaps, replace=False)
            some = {"init": centres[kept], "max_iter": SPREADING_ITERATIONS}
            centres = _centres(points / unit, count - in_gaps, seed, weight=weight, **some)
            centres = np.concatenate([centres, _centres(gaps, in_gaps, seed)])
        points = centres * unit
    return _independent(points, kernel, share)


def _centres(points, count, seed, *, weight=None, init="random", max_iter=KMEANS_ITERATIONS):
    """Centres of k-means of points (n, D) with weights (n,), from given or random ones."""
    from sklearn.cluster import KMeans  # takes a second to import

    means = KMeans(count, n_init=1, init=init, max_iter=max_iter, random_state=seed)
    with one_thread():  # of OpenMP, which came with the import
        return means.fit(points, sample_weight=weight).cluster_centers_


def _pivoted(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily the row of largest variance given those chosen: pivoted Cholesky of K without K, O(n count^2)."""
    given = ConditionalVariance(sample, count, kernel, share)
    while not given.full and given.variance.max() > given.least:
        row = int(given.variance.argmax())
        given.choose(row, given.columns([row])[:, 0])
    return sample[given.chosen]


def _evidence(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily the row that raises the evidence most; see `greedy_evidence`."""
    _refuse_no_targets("evidence", targets, noise)
    return sample[greedy_evidence(sample, targets, count, kernel, noise, seed, share=share)[0]]


def _posterior(sample, targets, count, kernel, noise, share, seed, places, *, gap=LEAST_GAP):
    """Greedily the row that raises the posterior most, until more would hardly; see `greedy_posterior`."""
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
    "hpev-sggp": partial(_posterior, gap=0.0),  # as many as are asked for: evidences of as many are compared
}
# Methods that climb the evidence of the whole committee, and those that choose about as they do where they begin.
BEGUN = {"optimised": "kmeans", "hpev-sgev": "evidence", "hpev-sggp": "sggp"}
ALTERNATED = ("hpev-sgev", "hpev-sggp")  # which choose again once hyper-parameters have climbed
TARGETED = ("evidence", "sggp", *ALTERNATED)  # which look at targets
STOPPING = ("sggp",)  # which may have enough with fewer than were asked for
QUERY_METHODS = tuple(CHOOSERS)
PLACED = ("kmeans", "optimised")  # whose points need be no rows


def has_working_targets(likelihood: Likelihood) -> bool:
    """True where rows can be regressed on in place of their likelihood: Gaussian noise, and classes.

    Counts, lifetimes and data with outliers are too far from a Gaussian around latents of 0.
    """
    return likelihood.normal or likelihood.categorical


def working_targets(likelihood, obs, mean, X) -> np.ndarray | None:
    """Targets (n, C) of a regression, those of the likelihood (`Likelihood.targets`) less their trend.

    The trend is the mean of the prior, by least squares. None where `has_working_targets` is false.
    """
    if not has_working_targets(likelihood):
        return None
    y = likelihood.targets(obs).reshape(len(obs), -1)
    H = mean.design(X)
    return y - H @ np.linalg.lstsq(H, y, rcond=None)[0]


def estimated_degrees(sample, noise, rows, kernel) -> float:
    """P_eff = tr K (K + Psi)^-1 of `rows` rows, one process, from n of them (GBCM paper, 6.1; SYSTEMS I.8).

    A sampled row stands for N / n rows, as if of its own noise variance times n / N: sum lam / (lam + psi) over
    the eigenvalues of the sample times N / n, which estimate those of all rows (Nystroem). At most n, so too
    low where it comes near: by a fifth at half of n.

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
    """How many query points `rows` rows deserve, and their estimated degrees of freedom.

    `POINTS_PER_DEGREE` points a degree, in steps of `QUERY_STEP`, between `LEAST_QUERY` and `MOST_QUERY`, no more
    than rows and no more than fit in memory.

    Parameters
    ----------
    sample : (n, D)
        Sampled rows in scaled units, in random order: the first `DEGREES_ROWS` are used.
    noise : (n,)
    fits : whether an expert about so many points may run
    """
    degrees = estimated_degrees(sample[:DEGREES_ROWS], noise[:DEGREES_ROWS], rows, kernel)
    steps = int(np.ceil(POINTS_PER_DEGREE * degrees / QUERY_STEP))
    count = min(max(steps * QUERY_STEP, LEAST_QUERY), MOST_QUERY, rows)
    while count > LEAST_QUERY and not fits(count):
        count -= QUERY_STEP
    return count, degrees
