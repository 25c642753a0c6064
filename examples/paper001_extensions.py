"""Two extensions of the GBCM paper, measured: boosting (section 6.9), and committees with different kernels (6.8).

    BCMDIST_DATA=FOLDER python paper001_extensions.py [--quick]

Boosting: regression on labels +1 and -1 by modules of 100 rows, on random halves of the rows; accuracy of the plain
committee, of one whose modules are weighted by the errors before, and of the sum of such modules. Lengthscale and
noise have the largest evidence of the plain committee. Kernels: a tenth of the rows is left out at random; partitions
are 10 x 10 cells. One committee with the kernel, or sum of two kernels, of largest evidence, beside two committees to
which the cells are assigned by the evidence of their rows. Without data in FOLDER rows are made here.
"""

import argparse
import itertools
import os
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bcmdist.app.demo import make_rows
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from published.boosting import boost_by_addition, boost_by_committee, decide, output
from published.committees_by_kernel import assigned, weighted

MODULE, POINTS = 100, 100
LENGTHSCALES, NOISES = (0.5, 1.0, 2.0), (0.1, 0.3, 1.0)
CELLS = 10  # on each side
SHORT_TO_LONG, CELL_NOISES, CELL_POINTS = (0.1, 0.2, 0.5, 1.0), (0.01, 0.05), 150


def rows_of(name, *names):
    """Arrays of a set in BCMDIST_DATA; None where it is not there."""
    path = Path(os.environ.get("BCMDIST_DATA", ".")) / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path) as arrays:
        return [arrays[one].astype(float) for one in names]


def standardised(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def query_of(points, *parts):
    """Query set under a sum of Matern kernels, of (lengthscale, variance) each."""
    kernel = parse_kernel("+".join(["matern32"] * len(parts)), inputs=points.shape[1])
    given = [
        values
        for lengthscale, variance in parts
        for values in (np.array([variance]), np.full(points.shape[1], lengthscale))
    ]
    return prepare(
        points, kernel=kernel.with_parameters(dict(zip(kernel.parameters, given, strict=True))), mean=Mean("zero")
    )


def boosting(X, y, repetition):
    """Accuracy (3,) in percent: plain committee, boosted by messages, boosted by addition."""
    order = np.random.default_rng(repetition).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    parts = [(X[some], y[some]) for some in np.array_split(train, max(1, len(train) // MODULE))]

    def plain(scale, noise):
        query = query_of(X[train[:POINTS]], (scale * np.sqrt(X.shape[1]), 1.0))
        messages = [expert_message(query, Gaussian(noise), rows, unweighted(targets)) for rows, targets in parts]
        return query, weighted(messages, np.ones(len(messages))), noise

    query, committee, noise = max(
        (plain(*one) for one in itertools.product(LENGTHSCALES, NOISES)), key=lambda one: one[1].log_evidence
    )
    means = [committee.posterior.mean, boost_by_committee(query, noise, parts).posterior.mean]
    means.append(boost_by_addition(query, noise, parts))
    return [100.0 * np.mean(decide(output(query, mean, X[test])) == y[test]) for mean in means]


def kernels(X, y, repetition, cells=CELLS):
    """RMSE and mean of -log p (2,) by one committee of one kernel, of a sum of two, and by two committees."""
    rng = np.random.default_rng(repetition)
    test = rng.random(len(y)) < 0.1
    edges = [np.quantile(column, np.linspace(0, 1, cells + 1)[1:-1]) for column in X.T]
    cell = np.searchsorted(edges[0], X[:, 0]) * cells + np.searchsorted(edges[1], X[:, 1])
    points = X[~test][rng.permutation((~test).sum())[:CELL_POINTS]]
    parts = [np.flatnonzero(~test & (cell == one)) for one in np.unique(cell[~test])]

    def messages(noise, *of_kernel):
        query = query_of(points, *of_kernel)
        return query, [expert_message(query, Gaussian(noise), X[rows], unweighted(y[rows])) for rows in parts]

    def loss(mean, variance):
        squared = (y[test] - mean) ** 2
        return squared, 0.5 * (squared / variance + np.log(2.0 * np.pi * variance))

    def best(candidates):
        """Losses of the candidate of largest evidence."""
        everything = [(weighted(found, np.ones(len(parts))), query, noise) for noise, query, found in candidates]
        committee, query, noise = max(everything, key=lambda one: one[0].log_evidence)
        mean, variance = predict_latent(query, committee.posterior, X[test])
        return loss(mean, variance + noise)

    single = [
        (noise, *messages(noise, (length, 1.0))) for noise, length in itertools.product(CELL_NOISES, SHORT_TO_LONG)
    ]
    pairs = list(itertools.combinations(SHORT_TO_LONG, 2))
    summed = [(noise, *messages(noise, (a, 0.5), (b, 0.5))) for noise, (a, b) in itertools.product(CELL_NOISES, pairs)]
    mixed = max(
        ((*assigned([one[2] for one in two]), two) for two in itertools.combinations(single, 2)), key=lambda one: one[2]
    )
    committees, share, _, two = mixed
    each = [
        loss(mean, variance + noise)
        for (noise, query, _), committee in zip(two, committees, strict=True)
        for mean, variance in [predict_latent(query, committee.posterior, X[test])]
    ]
    place = {one: number for number, one in enumerate(np.unique(cell[~test]))}
    of_row = share[[place[one] for one in cell[test]]]
    density = -np.logaddexp.reduce([np.log(of_row[:, k] + 1e-300) - each[k][1] for k in range(2)])
    squared = of_row[:, 0] * each[0][0] + of_row[:, 1] * each[1][0]
    return [(np.sqrt(a.mean()), b.mean()) for a, b in (best(single), best(summed), (squared, density))]


def shown(values):
    """Mean and standard error over repetitions, of (R, ...)."""
    values = np.array(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1:])
    return values.mean(axis=0), error


def main(args):
    repetitions = 2 if args.quick else 10
    sets = {} if args.quick else {name: rows_of(name, "X", "y") for name in ("pima", "bupa", "magic")}
    made = make_rows(600, sigma=0.1, seed=0, inputs=5, part=0)
    sets = {name: arrays for name, arrays in sets.items() if arrays} | {"made": (made["X"], made["y_noise_free"])}
    print("accuracy in percent: plain, boosted by messages, boosted by addition")
    for name, (X, y) in sets.items():
        some = np.random.default_rng(0).permutation(len(y))[:3000]
        labels = np.where(y[some] > 0, 1.0, -1.0)
        mean, error = shown([boosting(standardised(X[some]), labels, one) for one in range(repetitions)])
        print(f"{name:10}", ", ".join(f"{m:.2f} +- {e:.2f}" for m, e in zip(mean, error, strict=True)))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800 if args.quick else 4000, 2))
    rough = np.where(X[:, 0] > 0, np.sin(25 * X[:, 0]) * np.sin(20 * X[:, 1]), X[:, 1])
    fields = {"made": (X, rough + 0.1 * rng.standard_normal(len(X)))}
    heaton = None if args.quick else rows_of("heaton_small", "X_train", "y_train")
    fields |= {"heaton": heaton} if heaton else {}
    cells = 4 if args.quick else CELLS
    print("RMSE and -log p: one kernel, sum of two kernels, two committees")
    for name, (X, y) in fields.items():
        mean, error = shown(
            [kernels(standardised(X), standardised(y), one, cells) for one in range(1 if args.quick else 3)]
        )
        print(f"{name:10}", "; ".join(f"{m[0]:.4f} {m[1]:.4f} +- {e[1]:.4f}" for m, e in zip(mean, error, strict=True)))


if __name__ == "__main__":
    with threadpool_limits(1):
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--quick", action="store_true", help="a small version, in seconds")
        main(parser.parse_args())
