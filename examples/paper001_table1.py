"""Table 1 of the GBCM paper: classification by one exact expert and by committees of small ones.

    BCMDIST_DATA=FOLDER python paper001_table1.py [--quick] [--out DIRECTORY] [--full] [--minutes 60]

Without bupa.npz and pima.npz in FOLDER the artificial columns alone are run. What the paper leaves
open is read alike for all columns:

- Classifier: the logistic one of section 5.2. The table speaks of "(generalized)" regression, and
  the one of section 6.5 needs a noise variance that is not given (with .3 or 1 it comes within 1.2 points).
- Query set: test inputs, N_Q at a time, predicted at the query points themselves until each test row
  has been predicted once. The paper's error bars say so: those of its GBCM rows are the binomial ones of
  20 sets of N_Q rows.
- Width gamma: by log loss on the last 100 training rows, given the others, once per repetition and
  by the exact expert; then all K rows are used. BUPA and DIABETES have too few rows for a validation
  set besides K training and 100 query rows.
- Labels: noisy for training, noise-free for scoring. A sigma of .5 turns a fifth to a quarter of the
  labels, so that no classifier could reach the paper's 93 % against noisy ones.
- Centres of the artificial map: not given, and accuracy varies more with them than with anything else. The
  first table draws them again in each repetition. The paper's error bars are too small for that, so it kept
  one draw. So does the second table, with that of 40 draws for each Dim whose GPR row comes nearest to
  the paper's: there the GPR row is fitted by one choice out of 40, and the GBCM rows are the test.

--full does the same as a user would, on a cluster of two workers, and keeps the percent right of each repetition in
results/paper001_table1.json: hyper-parameters are learned by evidence, and query points are centres of the training
rows, from which a committee is extended to the test rows. So a committee with 50 query points of 50 inputs predicts
worse than in the paper, whose query points are the test rows. "default" is `GBCM.fit` without options. Centres of the
artificial map are drawn again in each repetition.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from paper001 import keep_on_cluster, options, output, picture, query_set
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.app.demo import make_rows
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Bernoulli
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.observation import observe
from published import tables
from published.results import Experiment

VALIDATION_ROWS = 100
WIDTHS = 2.0 ** np.arange(-2, 4)  # candidates for gamma, in units of sqrt(Dim) standard deviations
COMMITTEES = ((10, 50), (100, 50), (10, 100), (100, 100))  # K/M and N_Q
METHODS = ("GPR", *(f"GBCM({module}, {points})" for module, points in COMMITTEES))
DEFAULT = "default"


@dataclass(frozen=True)
class Column:
    """A column of the table with the paper's figures, mean and error bar of each method."""

    name: str
    rows: int
    paper: tuple[tuple[float, float], ...]
    file: str | None = None
    inputs: int = 0
    sigma: float = 0.0


COLUMNS = (
    Column("BUPA", 200, ((69.15, 0.5), (70.0, 0.8), (70.6, 1.7), (69.9, 0.9), (69.2, 0.7)), file="bupa"),
    Column("DIABETES", 600, ((77.5, 0.0), (77.8, 1.3), (78.2, 1.0), (76.6, 0.7), (76.7, 0.8)), file="pima"),
    Column("5, 0", 600, ((97.6, 0.4), (98.0, 0.4), (97.3, 0.5), (97.4, 0.3), (97.6, 0.4)), inputs=5, sigma=0.0),
    Column("5, .5", 600, ((93.2, 0.4), (93.2, 0.9), (93.5, 1.0), (92.9, 0.6), (93.2, 0.5)), inputs=5, sigma=0.5),
    Column("50, .1", 600, ((90.1, 0.4), (89.9, 0.9), (89.1, 1.0), (90.6, 0.6), (91.7, 0.7)), inputs=50, sigma=0.1),
    Column("2, .1", 600, ((98.4, 0.4), (99.0, 0.4), (98.6, 0.5), (98.4, 0.3), (98.0, 0.4)), inputs=2, sigma=0.1),
)


@dataclass(frozen=True)
class Split:
    """Training and test rows, inputs standardised by the training rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def standardised(X, y, X_test, y_test):
    mean, sd = X.mean(axis=0), X.std(axis=0)
    return Split((X - mean) / sd, y.astype(float), (X_test - mean) / sd, y_test.astype(float))


def real_split(path, rows, repetition):
    """`rows` random training rows; all others are test rows."""
    with np.load(path) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"]
    order = np.random.default_rng(repetition).permutation(len(y))
    train, test = order[:rows], order[rows:]
    return standardised(X[train], y[train], X[test], y[test])


def artificial_split(column, test_rows, *, centres, repetition):
    """Rows of Appendix C about a draw of centres; test labels are noise-free."""
    wanted = {"sigma": column.sigma, "seed": centres, "inputs": column.inputs}
    train = make_rows(column.rows, part=2 * repetition, **wanted)
    test = make_rows(test_rows, part=2 * repetition + 1, **wanted)
    return standardised(train["X"], train["y"], test["X"], test["y_noise_free"])


def latent(X, y, points, *, width, module):
    """Mean and variance of f at `points`, the query set of experts of `module` rows each."""
    query, obs = query_set(points, width), unweighted(y)
    modules = [slice(a, a + module) for a in range(0, len(y), module)]
    messages = (expert_message(query, Bernoulli(), X[rows], obs[rows]) for rows in modules)
    return predict_latent(query, Committee(sum(messages, zero(query.size))).posterior, points)


def validated_width(X, y):
    """The gamma with the least log loss on the last rows, given the others."""
    rows = len(y) - VALIDATION_ROWS
    seen, held = slice(rows), slice(rows, None)

    def log_loss(width):
        mean, variance = latent(X[seen], y[seen], X[held], width=width, module=rows)
        probability = observe(Bernoulli(), mean, variance, unweighted(np.zeros(len(mean))))["probability"]
        return -np.log(probability[np.arange(VALIDATION_ROWS), y[held].astype(int)]).mean()

    return min(WIDTHS * np.sqrt(X.shape[1]), key=log_loss)


def query_sets(rows, points):
    """Slices of `points` rows which together cover all rows; the last one may repeat some."""
    stops = [*range(points, rows, points), rows]
    return [slice(max(0, stop - points), stop) for stop in stops]


def accuracy(split, *, width, module, points):
    """Percent of the test rows on the right side, each predicted as a query point."""
    positive = np.empty(len(split.y_test), dtype=bool)
    for rows in query_sets(len(positive), points):
        positive[rows] = latent(split.X, split.y, split.X_test[rows], width=width, module=module)[0] > 0
    return 100.0 * np.mean(positive == split.y_test)


def exact_accuracy(split, width):
    """Percent right of one expert with all rows: exact at any query points."""
    return accuracy(split, width=width, module=len(split.y), points=len(split.y_test))


def exact_accuracy_at_validated_width(split):
    return exact_accuracy(split, validated_width(split.X, split.y))


def accuracies(split):
    """Of each method, (5,)."""
    width = validated_width(split.X, split.y)
    committees = [accuracy(split, width=width, module=module, points=points) for module, points in COMMITTEES]
    return np.array([exact_accuracy(split, width), *committees])


def nearest_draw(columns, test_rows, *, draws, repetitions):
    """The draw of centres whose GPR row comes nearest to the paper's in all of `columns`."""

    def gap(column, centres):
        splits = (artificial_split(column, test_rows, centres=centres, repetition=r) for r in repetitions)
        return abs(np.mean([exact_accuracy_at_validated_width(s) for s in splits]) - column.paper[0][0])

    return min(range(draws), key=lambda centres: max(gap(column, centres) for column in columns))


def mean_and_error(samples):
    """Mean and standard error over repetitions, (R, 5) -> two of (5,)."""
    return samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


def table(results):
    """Lines of text: the paper's figure beside ours, one column of the table after the other."""
    lines = ["percent right".ljust(16) + "".join(f"{c.name:^25}" for c in results)]
    lines.append(" " * 16 + "  ".join(["  paper          ours  "] * len(results)))
    for k, method in enumerate(METHODS):
        cells = []
        for column, samples in results.items():
            mean, error = mean_and_error(samples)
            cells.append("{:5.1f} ±{:3.1f}  {:5.1f} ±{:3.1f}".format(*column.paper[k], mean[k], error[k]))
        lines.append(method.ljust(16) + "    ".join(cells))
    return lines


def gaps(results):
    """Lines of text: how far each column is from the paper, and its committees from its GPR row."""
    lines = []
    for column, samples in results.items():
        mean = samples.mean(axis=0)
        off = mean - [figure for figure, _ in column.paper]
        worst = np.argmax(np.abs(off))
        lines.append(
            f"{column.name:9} largest gap to the paper {off[worst]:+.1f} ({METHODS[worst]}), of a committee to "
            f"our GPR {max(mean[1:] - mean[0], key=abs):+.1f}; GPR varies over repetitions by {samples[:, 0].std():.1f}"
        )
    return lines


def draw(figure, results):
    """The table as points with error bars."""
    for axes, (column, samples) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        places = np.arange(len(METHODS))
        paper, bar = np.transpose(column.paper)
        mean, error = mean_and_error(samples)
        axes.errorbar(places - 0.1, paper, bar, fmt="o", color="0.5", label="paper")
        axes.errorbar(places + 0.1, mean, error, fmt="o", label="bcmdist")
        axes.set_xticks(places, METHODS, rotation=90)
        axes.set_title(column.name)
    figure.axes[0].set_ylabel("percent right")
    figure.axes[0].legend()


def real_results(repetitions):
    """Percent right by column, (R, 5), of the data sets that are there."""
    folder, results = os.environ.get("BCMDIST_DATA"), {}
    for column in (c for c in COLUMNS if c.file):
        path = Path(folder or ".", f"{column.file}.npz")
        if folder and path.exists():
            splits = (real_split(path, column.rows, r) for r in range(repetitions))
            results[column] = np.array([accuracies(split) for split in splits])
        else:
            where = f"not in {folder}" if folder else "set BCMDIST_DATA to the folder of its file"
            print(f"{column.name} skipped: {path.name}: {where}")
    return results


def artificial_results(repetitions, test_rows, centres):
    """Percent right by column, (R, 5); `centres(column, repetition)` names the draw of centres."""
    results = {}
    for column in (c for c in COLUMNS if not c.file):
        draws = ((centres(column, r), r) for r in repetitions)
        splits = (artificial_split(column, test_rows, centres=c, repetition=r) for c, r in draws)
        results[column] = np.array([accuracies(split) for split in splits])
    return results


def by_service(split: Split, method, runtime) -> float:
    """Percent of the test rows on the right side, by a committee that learns and predicts on a cluster."""
    settings = Settings(task="classification")
    if method != DEFAULT:
        module, points = dict(zip(METHODS, ((len(split.y), len(split.y)), *COMMITTEES), strict=True))[method]
        how = {"kernel": "se-iso", "mean": "zero", "partition": "chunks", "effort": "quick"}
        settings = Settings(task="classification", rows_per_expert=module, query=points, **how)
    gbcm = GBCM.fit((split.X, split.y.astype(int)), settings, runtime=runtime)
    positive = gbcm.predict(split.X_test)["probability"][:, 1] > 0.5
    return 100.0 * float(np.mean(positive == split.y_test))


ALL = (*METHODS, DEFAULT)
PAPER = tables.by_method(METHODS, {column.name: [figure for figure, _ in column.paper] for column in COLUMNS})
RIGHT = tables.Column("right", "percent right", PAPER, "higher", ".1f")
TABLES = (tables.Table("Committees", ALL, PAPER, (RIGHT,)),)


def full(minutes, repetitions, test_rows):
    """Compute what is left, and show all that there is."""
    folder = Path(os.environ.get("BCMDIST_DATA", "."))
    columns = {column.name: column for column in COLUMNS if not column.file or (folder / f"{column.file}.npz").exists()}
    each = [Experiment(r, name, method) for r in range(repetitions) for name in columns for method in ALL]

    def right(experiment, runtime):
        column, r = columns[experiment.set], experiment.split
        if column.file:
            split = real_split(folder / f"{column.file}.npz", column.rows, r)
        else:
            split = artificial_split(column, test_rows, centres=r, repetition=r)
        return {"right": by_service(split, experiment.method, runtime)}

    keep_on_cluster("paper001_table1", each, right, TABLES, minutes=minutes)


def show(title, results):
    print(f"\n{title}", *table(results), "", *gaps(results), sep="\n")


def main(args):
    repetitions, test_rows, draws = (2, 100, 2) if args.quick else (20, 500, 40)
    searched = range(1 if args.quick else 10)  # repetitions by which the draw of centres is chosen
    artificial = [column for column in COLUMNS if not column.file]
    with threadpool_limits(1), output(args) as out:
        real = real_results(repetitions)
        if real:
            show("Real data", real)
        anew = artificial_results(range(repetitions), test_rows, lambda column, r: r)
        show("Artificial data (Dim, sigma), centres drawn again in each repetition", anew)
        chosen = {}
        for inputs in {column.inputs for column in artificial}:
            columns = [column for column in artificial if column.inputs == inputs]
            chosen[inputs] = nearest_draw(columns, test_rows, draws=draws, repetitions=searched)
        unseen = range(len(searched), len(searched) + repetitions)
        kept = artificial_results(unseen, test_rows, lambda column, r: chosen[column.inputs])
        show(f"Artificial data, one draw of centres for each Dim: {chosen}", kept)
        picture(out / "paper001_table1.png", lambda figure: draw(figure, real | kept), size=(14, 4.5))


if __name__ == "__main__":
    asked = options(__doc__).parse_args()
    if asked.full:
        full(asked.minutes, 20, 500)
    else:
        main(asked)
