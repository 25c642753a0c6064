"""One data set, many rules to combine its experts: point by point, and jointly over many points.

    python 04_rules_compared.py [--quick] [PICTURE.png]

Functions are drawn from the Gaussian process that all experts assume, rows go to experts at random, and
a gap is left without rows: whatever a rule gets wrong is its own doing. Figures are about the noise-free
f on a grid, except the joint log density, which is of noisy observations of the whole grid. A rule that
gives variances only leaves no choice but to take errors at different points as independent. The right
half of the table shows what this does to the mean of f over a window, and to all points together.
The committee's query set is the grid.
"""

import sys

import numpy as np

from bcmdist.api.pictures.paper import HOW_TO_GET
from bcmdist.errors import MissingExtra
from bcmdist.model.kernels import parse_kernel
from published import rules

ROWS, EXPERTS, NOISE = 400, 10, 0.1
LENGTH, GAP = 10.0, (5.0, 6.5)
KERNEL = parse_kernel("matern52", inputs=1).with_parameters({"variance": np.ones(1), "lengthscale": np.array([0.5])})
GRID = np.linspace(0.05, LENGTH - 0.05, 100)[:, None]
WINDOW = 10  # points of the grid: two lengthscales
NORMAL95 = 1.959964


def draw(seed):
    """Experts' rows, and f and noisy observations of it on the grid."""
    rng = np.random.default_rng(seed)
    start, stop = GAP
    outside = rng.uniform(0, LENGTH - (stop - start), (ROWS, 1))
    X = np.where(outside < start, outside, outside + stop - start)
    everywhere = np.vstack([X, GRID])
    covariance = KERNEL.cross(everywhere, everywhere) + 1e-9 * np.eye(len(everywhere))
    f = np.linalg.cholesky(covariance) @ rng.standard_normal(len(everywhere))
    y = f + np.sqrt(NOISE) * rng.standard_normal(len(f))
    parts = [(X[rows], y[rows]) for rows in np.array_split(rng.permutation(ROWS), EXPERTS)]
    return parts, f[ROWS:], y[ROWS:]


def predict(parts):
    """Mean and covariance on the grid by each rule; covariance is diagonal where the rule has none."""
    whole = [tuple(np.concatenate(column) for column in zip(*parts, strict=True))]
    joint = {
        "full GP": rules.gbcm(KERNEL, NOISE, whole, GRID),
        "committee (joint)": rules.gbcm(KERNEL, NOISE, parts, GRID),
        "nested kriging (joint)": rules.npae_joint(KERNEL, NOISE, parts, GRID),
    }
    experts = rules.expert_predictions(KERNEL, NOISE, parts, GRID)
    marginal = {
        "full GP, variances": (joint["full GP"][0], np.diag(joint["full GP"][1])),
        "nested kriging": rules.npae(KERNEL, NOISE, parts, GRID),
        "GRBCM": rules.grbcm(KERNEL, NOISE, parts[0], parts[1:], GRID),
        **{name: rule(*experts, KERNEL.diagonal(GRID)) for name, rule in rules.POINTWISE_RULES.items()},
    }
    return joint | {name: (mean, np.diag(variance)) for name, (mean, variance) in marginal.items()}


def scores(mean, covariance, f, y):
    """Figures of one rule on one data set, in the order of `COLUMNS`."""
    variance = np.diag(covariance)
    z2 = (f - mean) ** 2 / variance
    windows = np.kron(np.eye(len(f) // WINDOW), np.full(WINDOW, 1.0 / WINDOW))
    window_z2 = (windows @ (f - mean)) ** 2 / np.einsum("ij,jk,ik->i", windows, covariance, windows)
    L = np.linalg.cholesky(covariance + NOISE * np.eye(len(f)))
    density = np.log(np.diag(L)).sum() + 0.5 * (np.linalg.solve(L, y - mean) ** 2).sum()
    return [
        np.mean((f - mean) ** 2),
        0.5 * np.mean(z2 + np.log(2 * np.pi * variance)),
        np.mean(z2 <= NORMAL95**2),
        np.mean(window_z2 <= NORMAL95**2),
        np.mean(window_z2),
        density / len(f) + 0.5 * np.log(2 * np.pi),
    ]


COLUMNS = ("rmse", "mnlp", "coverage95", "window coverage95", "window error/sd", "joint mnlp of y")
ROOTS = (0, 4)  # columns whose square is averaged


def picture(path, seed):
    """Bands of two standard deviations by four rules."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra(HOW_TO_GET) from error
    mpl.use("Agg")
    from matplotlib import pyplot

    parts, f, _ = draw(seed)
    predictions, x = predict(parts), GRID[:, 0]
    figure, axes = pyplot.subplots(4, 1, figsize=(8, 9), sharex=True, sharey=True, layout="constrained")
    for axis, name in zip(axes, ("committee (joint)", "rBCM", "PoE", "gPoE uniform"), strict=True):
        mean, covariance = predictions[name]
        half = 2 * np.sqrt(np.diag(covariance))
        axis.fill_between(x, mean - half, mean + half, alpha=0.3)
        axis.plot(x, mean)
        axis.plot(x, f, "k--", linewidth=1)
        axis.axvspan(*GAP, color="0.93", zorder=0)
        axis.set(title=f"{name}: mean, two standard deviations, f (dashed); no rows in the grey gap")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(seeds, path):
    figures: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        parts, f, y = draw(seed)
        for name, prediction in predict(parts).items():
            figures.setdefault(name, []).append(scores(*prediction, f, y))
    print(
        f"{ROWS} rows in {EXPERTS} experts, averages over {seeds} functions; window: mean of f over {WINDOW} points\n"
    )
    print(f"{'':24}" + "".join(f"{name:>19}" for name in COLUMNS))
    for name, rows in figures.items():
        mean = np.mean(rows, axis=0)
        mean[list(ROOTS)] = np.sqrt(mean[list(ROOTS)])
        print(f"{name:24}" + "".join(f"{value:19.3f}" for value in mean))
    print("\nwindow error/sd: 1 where the stated uncertainty is right, above 1 where it is too small")
    if path:
        picture(path, seed=0)
        print("picture:", path)


if __name__ == "__main__":
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    main(3 if "--quick" in sys.argv else 20, paths[0] if paths else None)
