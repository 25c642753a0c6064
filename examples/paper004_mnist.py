"""One digit against all others by relevance vectors: J. Quinonero-Candela's thesis "Learning with Uncertainty" (2004),
paper C, section 5: handwritten digits of MNIST in 16 principal components.

    python paper004_mnist.py mnist.npz [DIGIT ...] [--full] [--minutes 60]
    python paper004_mnist.py --quick

Training rows are all images of the digit and as many others at random, 800 of them centres of basis functions; test
rows are the 10,000 test images. The paper has the ones only: an error of .74 % with 28 functions (subspace EM), .66 %
with 31 (batch EM). It has a probit likelihood in mean field; here it is a logit one in Laplace's approximation, at the
mode of all rows, and lengthscales are those of a Gaussian process on the labels.

"balanced" takes what is likelier where half of all images are of the digit, as in the training rows (what the paper
does is not said); "share" where as many are as among all training images, a tenth: odds times share / (1 - share).

mnist.npz holds X_train (n, 784), y_train (n,), X_test, y_test. --quick: the 8 x 8 digits of scikit-learn, zero and one.
--full keeps the errors of each digit in results/paper004_mnist.json and goes on from there.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset
from published.results import Experiment, Results, add_options, completed
from published.tables import Column, Table, text

COMPONENTS, FUNCTIONS = 16, 800
PAPER = {1: "0.74 % with 28 functions, 0.66 % with 31"}
SETTINGS = Settings(expert="rvm", kernel="se", task="classification", passes="auto", rows_per_expert=3500)


def images(path):
    """Training and test images (n, pixels) and digits (n,)."""
    found = np.load(path)
    return found["X_train"] / 255.0, found["y_train"], found["X_test"] / 255.0, found["y_test"]


def small_images():
    """Some 1,800 images of scikit-learn, a third of them to test with."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 3 == 0
    return X[~test] / 16.0, y[~test], X[test] / 16.0, y[test]


def projected(X, others, components):
    """Onto the principal components of X (n, D): (n, K) and (m, K)."""
    mean = X.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(X, rowvar=False))
    axes = axes[:, ::-1][:, :components]
    return (X - mean) @ axes, (others - mean) @ axes


def balanced(y, digit, rng):
    """Rows of a digit and as many others, in random order."""
    own, others = np.flatnonzero(y == digit), np.flatnonzero(y != digit)
    return rng.permutation(np.concatenate([own, rng.choice(others, min(len(own), len(others)), replace=False)]))


def one_digit(digit, X, y, Xs, ys, settings):
    """Test errors, balanced and by the share of the digit, number of relevance vectors, training rows and seconds."""
    rows, start = balanced(y, digit, np.random.default_rng(digit)), time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        columns = {"X": X[rows], "y": (y[rows] == digit).astype(np.uint8)}
        write_dataset(Path(directory, "train.zarr"), columns, rows_per_chunk=settings.rows_per_expert)
        gbcm = GBCM.fit(Path(directory, "train.zarr"), settings, model=Path(directory, "model"))
        likely = gbcm.predict(Xs)["probability"][:, 1]
        errors = [np.mean((likely > limit) != (ys == digit)) for limit in (0.5, np.mean(y != digit))]
        return *errors, gbcm.info()["relevance_vectors"]["number"], len(rows), time.perf_counter() - start


def computed(path, experiment: Experiment) -> dict[str, float]:
    """Percentages of wrong test images of one digit."""
    X, y, Xs, ys = images(path)
    X, Xs = projected(X, Xs, COMPONENTS)
    settings = Settings(**vars(SETTINGS) | {"query": FUNCTIONS, "effort": "quick"})
    digit = int(experiment.set.removeprefix("digit "))
    balanced, share, functions, _, _ = one_digit(digit, X, y, Xs, ys, settings)
    return {"balanced": 100.0 * float(balanced), "share": 100.0 * float(share), "functions": functions}


METHOD = "rvm"
TABLES = (
    Table(
        "MNIST, one digit against all others, in 16 components (paper C)",
        (METHOD,),
        tuple(f"digit {digit}" for digit in range(10)),
        (
            Column("share", "percent wrong, by the digit's share", {"digit 1": {METHOD: 0.74}}, form=".2f"),
            Column("balanced", "percent wrong, balanced", form=".2f"),
            Column("functions", "functions", {"digit 1": {METHOD: 28}}, "neither", ".0f"),
        ),
        words="The paper has the ones only: .74 % with 28 functions by subspace EM, .66 % with 31 by batch EM.",
    ),
)


def full(path, digits, minutes):
    """Compute what is left, and show all that there is."""
    results = Results("paper004_mnist")
    each = [Experiment(0, f"digit {digit}", METHOD) for digit in digits]
    completed(results, each, partial(computed, path), minutes=minutes)
    print(text(TABLES, results))


def main(path, digits, quick):
    X, y, Xs, ys = small_images() if quick else images(path)
    X, Xs = projected(X, Xs, COMPONENTS)
    settings = Settings(**vars(SETTINGS) | {"query": 80 if quick else FUNCTIONS, "effort": "quick"})
    print(f"{'digit':>5}{'rows':>8}{'balanced':>10}{'share':>8}{'functions':>11}{'seconds':>9}  paper")
    found = []
    for digit in digits:
        error, shared, functions, rows, seconds = one_digit(digit, X, y, Xs, ys, settings)
        found.append((error, shared, functions))
        figures = f"{digit:5}{rows:8}{error:10.2%}{shared:8.2%}{functions:11}{seconds:9.0f}"
        print(f"{figures}  {PAPER.get(digit, '-')}", flush=True)
    error, shared, functions = np.mean(found, axis=0)
    print(f"{'mean':>5}{'':8}{error:10.2%}{shared:8.2%}{functions:11.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", help="mnist.npz")
    parser.add_argument("digits", nargs="*", type=int, help="which [default: all]")
    parser.add_argument("--quick", action="store_true", help="small images, two digits")
    add_options(parser)
    asked = parser.parse_args()
    if not (asked.path or asked.quick):
        parser.error("expected the path of mnist.npz, or --quick; give one")
    if asked.full:
        full(asked.path, asked.digits or range(10), asked.minutes)
    else:
        main(asked.path, asked.digits or range(2 if asked.quick else 10), asked.quick)
