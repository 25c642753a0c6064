"""Which points make the query set, and how many.

Every method has one interface: rows sampled from the data, in scaled units, and what they say of the latent f,
go in; points come out. "kmeans" and "random" look at the inputs alone, "pivoted" at the prior too, "evidence" at
the targets as well. "kmeans" also looks at places where predictions will be wanted, and of few inputs at gaps between
rows.
"""

from collections.abc import Callable

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import POINTS_PER_DEGREE
from bcmdist.errors import InvalidOption
from bcmdist.learning.uncovered import gap_places
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import Likelihood

KMEANS_ITERATIONS = 25  # the committee needs spread-out points, not the optimal clustering
SPREADING_ITERATIONS = 10  # of centres that were spread, some of which are taken away

# Share of the query points that gaps may take: with more, the committee alone predicts worse where rows are clumped. On
# rows of three validation splits of heaton that mirror its gaps, RMSE .767, .937, 1.041 without any, .780, .875, .989
# with them (exponential kernel, 1000 points).
MOST_IN_GAPS = 0.25

# Candidates for each next point: with 59 the best is among the best 5 % with probability 95 % (1 - .95^59).
POOL = 59

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
        What "evidence" looks at: see `working_targets`, `Likelihood.noise`.
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
    if places is not None and method != PLACED:
        raise InvalidOption(f"query method: expected {PLACED} with places, got {method!r}; leave out one of them")
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
        if in_gaps:  # the others spread anew, from where they were
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
    return means.fit(points, sample_weight=weight).cluster_centers_


class _Given:
    """What f at the sampled rows still varies, given f at the rows chosen so far.

    Partial Cholesky factorisation K = V V' + remainder with a column of V for each chosen row; memory n count.
    """

    def __init__(self, sample, count, kernel, share):
        self.sample, self.kernel = sample, kernel
        self.variance = kernel.diagonal(sample)
        """diagonal of the remainder, (n,)"""
        self.least = share * self.variance.mean()
        """a row of less variance is determined by those chosen"""
        self.chosen: list[int] = []
        self._space = np.empty((len(sample), min(count, len(sample))), order="F")
        self.V = self._space[:, :0]
        """(n, chosen)"""

    @property
    def full(self) -> bool:
        """True where as many rows were chosen as were asked for."""
        return self.V.shape == self._space.shape

    def columns(self, rows) -> np.ndarray:
        """The column that each of `rows` (c,) would append to V, (n, c)."""
        remainder = self.kernel.cross(self.sample, self.sample[rows]) - self.V @ self.V[rows].T
        return remainder / np.sqrt(self.variance[rows])

    def choose(self, row, column) -> None:
        self._space[:, len(self.chosen)] = column
        self.chosen.append(int(row))
        self.V = self._space[:, : len(self.chosen)]
        self.variance = self.variance - column**2
        self.variance[row] = 0.0


def _pivoted(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily the row of largest variance given those chosen: pivoted Cholesky of K without K, O(n count^2)."""
    given = _Given(sample, count, kernel, share)
    while not given.full and given.variance.max() > given.least:
        row = int(given.variance.argmax())
        given.choose(row, given.columns([row])[:, 0])
    return sample[given.chosen]


def _evidence(sample, targets, count, kernel, noise, share, seed, places):
    """Greedily the row that raises the evidence most; see `greedy_evidence`."""
    if targets is None or noise is None:
        raise InvalidOption(
            "query method evidence: expected targets and their noise, got none; give them, or choose pivoted or kmeans"
        )
    return sample[greedy_evidence(sample, targets, count, kernel, noise, seed, share=share)[0]]


def greedy_evidence(
    sample, targets, count, kernel, noise, seed, *, share=linalg.DUPLICATE_SHARE
) -> tuple[np.ndarray, np.ndarray]:
    """Rows chosen one by one for the evidence of the targets, and by how much each raised it (thesis, 3.3.4, A.3).

    The model is that of the chosen rows alone (SoR), y ~ N(0, V V' + Psi) with Psi = diag(noise) and V V' the
    part of K that they explain. With L L' = I + V' Psi^-1 V and r = L^-1 V' Psi^-1 y, a column u appended to V
    appends (z', d) to L and t to r (SYSTEMS T14),

        z = L^-1 V' Psi^-1 u,   d^2 = 1 + u' Psi^-1 u - z'z,   t = (u' Psi^-1 y - z'r) / d,

    and the log evidence gains t^2 / 2 - log d. The best of `POOL` random rows is taken, in O(n count) each.

    Parameters
    ----------
    targets : (n, C)
        Of C processes with the same kernel, whose gains are summed.

    Returns
    -------
    rows (m,) with m <= count, gains (m,) in nats
    """
    rng = np.random.default_rng(seed)
    given = _Given(sample, count, kernel, share)
    size, classes = min(count, len(sample)), targets.shape[1]
    L, r = np.zeros((size, size), order="F"), np.zeros((size, classes))
    gains: list[float] = []
    free = np.flatnonzero(given.variance > given.least)
    while not given.full and len(free):
        pool, m = rng.choice(free, min(POOL, len(free)), replace=False), len(gains)
        U = given.columns(pool)
        weighted = U / noise[:, None]
        Z = linalg.solve_lower(L[:m, :m], np.asfortranarray(given.V.T @ weighted))
        d = np.sqrt(1.0 + np.einsum("ij,ij->j", U, weighted) - np.einsum("ij,ij->j", Z, Z))
        t = (weighted.T @ targets - Z.T @ r[:m]) / d[:, None]
        gain = 0.5 * (t**2).sum(axis=1) - classes * np.log(d)
        best = int(gain.argmax())
        L[m, :m], L[m, m], r[m] = Z[:, best], d[best], t[best]
        given.choose(pool[best], U[:, best])
        gains.append(float(gain[best]))
        free = np.flatnonzero(given.variance > given.least)
    return np.array(given.chosen), np.array(gains)


CHOOSERS: dict[str, Callable] = {"kmeans": _kmeans, "random": _random, "pivoted": _pivoted, "evidence": _evidence}
QUERY_METHODS = tuple(CHOOSERS)
PLACED = "kmeans"  # whose points need be no rows


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
