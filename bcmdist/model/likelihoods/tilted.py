"""Moments of a Gaussian belief times the likelihood of one row, for many rows at once.

Expectation propagation needs, for each row, the normaliser and the moments of the tilted density
N(f; mean, variance) p(y | f). All computations use z = (f - mean) / sd, so variance 0 is not a special case and a
narrow belief loses no digits. The rule is Gauss-Legendre on panels on both sides of the mode, out to where the
integrand has vanished; a panel is halved until a polynomial fits. (A wide belief times a step is far from Gaussian, and
Gauss-Hermite at the mode would need thousands of nodes.)
"""

from collections.abc import Callable

import numpy as np
from scipy.special import eval_legendre, roots_legendre

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.likelihoods.interface import OneProcess

PANEL_NODES = 20  # about 180 evaluations per row; logistic rows: errors of 1e-11 up to variance 1e8 (measured)
# Initial panels, as shares of each side; the short ones resolve narrow features near the mode.
PANEL_EDGES = np.array([0.0, 1.0 / 64.0, 1.0 / 8.0, 1.0])
# A panel fits when the last two Legendre coefficients of the integrand are below this share of the smallest possible
# mass of a log-concave row. The error of Gauss-Legendre is about the square of this.
PANEL_TOLERANCE = 1e-7
PANEL_NOISE = 1e-9  # or below this share of the panel's peak: the rounding of log p at counts of 1e6
PANEL_HALVINGS = 30  # 1e9 between the widest and the narrowest feature; not reached
# The integrand is cut where it has fallen by exp(-40) = 4e-18 from the mode,
LOG_DROP = 40.0
# located to within this factor.
CUT_FACTOR = 1.25
# Tolerance of the mode, as a share of the local scale: the mode only splits the range.
MODE_SHARE = 0.1
SEARCH_STEPS = 200  # the searches halve at least every third step: enough for 20 orders of magnitude
# Where the score overflows, the mode is searched within this |z|.
FARTHEST = 1e12
# Below this sd relative to |mean|, rounding hides how the score changes with f, and the slope is the curvature.
NARROW = 1e-8
# Rows that shrink the variance below this share are informative: the difference of precisions is accurate.
LOUD = 0.5


def tilted(
    likelihood: OneProcess, obs: Observations, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log normaliser, mean and variance of N(f; mean, variance) p(y | f), row by row, each (n,).

    Exact to rounding for log-concave likelihoods. Otherwise (Student-t) one of the modes is found, and mass beyond a
    valley of exp(-`LOG_DROP`) is missed.
    """
    sd = np.sqrt(variance)
    row, z, share, log_z = _nodes(likelihood, obs, mean, sd)
    centre = np.bincount(row, share * z)
    second = np.bincount(row, share * (z - centre[row]) ** 2)
    return log_z, mean + sd * centre, variance * second


def tilted_site(
    likelihood: OneProcess, obs: Observations, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The site exp(nu f - 1/2 tau f^2) that gives N(f; mean, variance) the moments of the tilted density.

    tau = 1/var(f) - 1/variance,   nu = E(s) + tau E(f),   with s the score: E(s) = (E(f) - mean) / variance

    For uninformative rows the difference of precisions has few digits. There integration by parts gives tau as the
    slope of the regression of the score on f, tau = -cov(s, f) / var(f). tau < 0, possible only where p is not
    log-concave, is replaced by 0; the mean is still matched.

    Returns
    -------
    log_z, tau, nu : (n,)
    """
    sd = np.sqrt(variance)
    row, z, share, log_z = _nodes(likelihood, obs, mean, sd)
    seen = share != 0  # elsewhere the score may overflow
    row, z, share = row[seen], z[seen], share[seen]
    score = likelihood.score(obs[row], mean[row] + sd[row] * z)
    centre, average = np.bincount(row, share * z), np.bincount(row, share * score)
    away = z - centre[row]
    second = np.bincount(row, share * away**2)
    slope = np.bincount(row, share * away * (average[row] - score)) / second
    narrow, loud = sd <= NARROW * (1.0 + np.abs(mean)), second < LOUD
    unit = np.where(narrow, 1.0, sd)
    tau = np.where(loud, (1.0 / second - 1.0) / unit**2, slope / unit)
    tau[narrow] = likelihood.curvature(obs[narrow], mean[narrow])
    tau = np.maximum(tau, 0.0)
    average = np.where(loud & ~narrow, centre / unit, average)
    return log_z, tau, average + tau * (mean + sd * centre)


def _nodes(
    likelihood: OneProcess, obs: Observations, mean: FloatArray, sd: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Nodes of all rows, flat: row index, z and share of the tilted density, each (K,); and the log normaliser (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        mode = _mode(likelihood, obs, mean, sd)
        top = likelihood.log_density(obs, mean + sd * mode)
        scale = _scale(likelihood, obs, mean, sd, mode)

        def fall(row: IntArray, offset: FloatArray) -> FloatArray:
            """Log of the integrand at mode + offset relative to the mode."""
            z = mode[row] + offset
            log_p = likelihood.log_density(obs[row], mean[row] + sd[row] * z)
            return log_p - top[row] - offset * (mode[row] + 0.5 * offset)

        every = np.arange(len(mean))
        left = -_cut(lambda r: fall(every, -r), scale)
        right = _cut(lambda r: fall(every, r), scale)
        row, offset, mass = _panels(fall, left, right)
    total = np.bincount(row, mass)
    log_z = top - 0.5 * mode**2 + np.log(total / np.sqrt(2.0 * np.pi))
    return row, mode[row] + offset, mass / total[row], log_z


def _scale(likelihood: OneProcess, obs: Observations, mean: FloatArray, sd: FloatArray, z: FloatArray) -> FloatArray:
    """1 / sqrt(-d2/dz2 log p(y | mean + sd z) N(z; 0, 1)), (n,)."""
    return 1.0 / np.sqrt(1.0 + sd**2 * likelihood.curvature(obs, mean + sd * z))


def _mode(likelihood: OneProcess, obs: Observations, mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Mode of p(y | mean + sd z) N(z; 0, 1), (n,), to `MODE_SHARE` of its scale, by alternating Newton and bisection.

    The mode is the zero of g(z) = sd score - z, where g changes from plus to minus. With a decreasing score it lies
    between 0 and g(0). Newton steps overshoot slightly on purpose, so that the mode is bracketed from both sides.
    """
    z = np.zeros(len(mean))
    g = sd * likelihood.score(obs, mean)
    bound = np.clip(np.nan_to_num(g, nan=-FARTHEST), -FARTHEST, FARTHEST)
    low, high = np.minimum(0.0, bound), np.maximum(0.0, bound)
    for step in range(SEARCH_STEPS):
        ends = [_scale(likelihood, obs, mean, sd, end) for end in (low, high)]
        if np.all(high - low <= MODE_SHARE * np.minimum(*ends)):
            break
        scale = _scale(likelihood, obs, mean, sd, z)
        newton = z + scale**2 * g + 0.4 * MODE_SHARE * scale * np.sign(g)
        usable = (low < newton) & (newton < high) & (step % 3 != 2)
        z = np.where(usable, newton, 0.5 * (low + high))
        g = sd * likelihood.score(obs, mean + sd * z) - z
        low, high = np.where(g > 0, z, low), np.where(g > 0, high, z)
    return 0.5 * (low + high)


def _cut(fall: Callable[[FloatArray], FloatArray], scale: FloatArray) -> FloatArray:
    """Distance (n,) just beyond the point where `fall` drops below -LOG_DROP: doubling, then halving."""
    low, high, r = np.zeros(len(scale)), np.full(len(scale), np.inf), scale
    for _ in range(SEARCH_STEPS):
        beyond = ~(fall(r) > -LOG_DROP)
        low, high = np.where(beyond, low, r), np.where(beyond, r, high)
        near = high <= CUT_FACTOR * low
        if near.all():
            break
        r = np.where(near, high, np.where(np.isinf(high), 2.0 * low, 0.5 * (low + high)))
    return high


def _panels(
    fall: Callable[[IntArray, FloatArray], FloatArray], left: FloatArray, right: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Adaptive Gauss-Legendre for exp(fall) on (left, 0) and (0, right): row, offset, mass of all nodes, flat.

    By concavity of `fall` a row has at least the mass (right - left) / (CUT_FACTOR^2 LOG_DROP).
    """
    x, weight = roots_legendre(PANEL_NODES)
    order = np.arange(PANEL_NODES - 2, PANEL_NODES)[:, None]
    coefficient = (order + 0.5) * weight * eval_legendre(order, x)
    allowed = PANEL_TOLERANCE * (right - left) / LOG_DROP
    row = np.tile(np.arange(len(left)), 2 * len(PANEL_EDGES) - 2)
    edges = np.vstack([np.outer(PANEL_EDGES[:0:-1], left), np.outer(PANEL_EDGES, right)])
    a, b = edges[:-1].ravel(), edges[1:].ravel()
    done = []
    for level in range(PANEL_HALVINGS + 1):
        half = 0.5 * (b - a)
        offset = 0.5 * (a + b)[:, None] + half[:, None] * x
        value = np.exp(fall(np.repeat(row, PANEL_NODES), offset.ravel())).reshape(offset.shape)
        tail = np.abs(value @ coefficient.T).max(axis=1)
        fits = ~((tail * half > allowed[row]) & (tail > PANEL_NOISE * value.max(axis=1)))
        if level == PANEL_HALVINGS:
            fits[:] = True
        mass = half[:, None] * weight * value
        done.append((np.repeat(row[fits], PANEL_NODES), offset[fits].ravel(), mass[fits].ravel()))
        row, a, b = row[~fits], a[~fits], b[~fits]
        if len(row) == 0:
            break
        middle = 0.5 * (a + b)
        row, a, b = np.tile(row, 2), np.concatenate([a, middle]), np.concatenate([middle, b])
    rows, offsets, masses = (np.concatenate(parts) for parts in zip(*done, strict=True))
    return rows, offsets, masses
