"""The demo: fit a committee to generated data on Dask workers, then score it and draw its pictures.

The data follow Appendix C of the GBCM paper: a class boundary from five normalised Gaussian basis functions, with noise
of standard deviation sigma added to the function before its sign is taken. The learning curve is the paper's figure 2:
the same committee scored after more and more rows.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.pictures import paper
from bcmdist.api.pictures.curves import learning_curve
from bcmdist.api.pictures.scores import score_picture
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import open_group
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import DataExists, InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.learning.settings_checks import refuse_seed
from bcmdist.prediction.scoring.scores import class_scores
from bcmdist.prediction.scoring.verdicts import verdict
from bcmdist.storage.urls import refuse_secrets

INPUTS = 5
AMPLITUDES = np.array([1.16, -0.63, -0.08, 0.35, -0.70])  # a_j of Appendix C
WIDTH = 0.36  # sigma_a of Appendix C
ROWS_PER_EXPERT = 1000
QUERY = 1000
ROWS_PER_CHUNK = 2000
LARGEST_ROWS = 10_000_000  # the demo makes its rows in memory
# Shares of all partitions after which the committee is scored: powers of two, evenly spaced on a log axis.
CURVE = (1 / 60, 2 / 60, 4 / 60, 8 / 60, 16 / 60, 32 / 60, 1.0)
# The first seed whose centres split the inputs so that the larger class holds at most 65 %.
DEFAULT_SEED = 2


@dataclass(frozen=True)
class DemoSizes:
    """Numbers of rows that the demo generates."""

    rows: int = 60_000
    test_rows: int = 10_000

    def __post_init__(self):
        if not 2 <= self.rows <= LARGEST_ROWS:
            raise InvalidOption(f"rows: expected 2 to {LARGEST_ROWS:,}, got {self.rows}; correct it")


def make_map(seed, *, inputs=INPUTS) -> Callable[[np.ndarray], np.ndarray]:
    """Return the noise-free function of Appendix C: (n, inputs) -> (n,), positive for class 1."""
    centers = np.random.default_rng(seed).uniform(0.0, 1.0, (len(AMPLITUDES), inputs))

    def value(X):
        r2 = ((X[:, None, :] - centers) ** 2).sum(axis=2)
        # Dividing by the nearest basis function avoids underflow far from all of them.
        weight = np.exp(-(r2 - r2.min(axis=1, keepdims=True)) / (2.0 * WIDTH**2))
        return weight @ AMPLITUDES / weight.sum(axis=1)

    return value


def make_rows(rows, *, sigma, seed, part, inputs=INPUTS) -> dict[str, np.ndarray]:
    """Generate `X` (rows, inputs), uniform in [-1, 1]^inputs, and the labels `y` (noisy) and `y_noise_free`."""
    rng = np.random.default_rng([seed, part])
    X = rng.uniform(-1.0, 1.0, (rows, inputs))
    value = make_map(seed, inputs=inputs)(X)
    noisy = value + sigma * rng.standard_normal(rows)
    return {"X": X, "y": (noisy > 0).astype(np.uint8), "y_noise_free": (value > 0).astype(np.uint8)}


def new_directory(out) -> Path:
    """Return the path `out`, which must be new; without `out`, the first unused default name."""
    if out is not None:
        refuse_secrets(out)
        if "://" in str(out):
            raise InvalidOption(f"demo: expected a path on a local disk, got {out}; give one")
        if Path(out).exists():
            raise DataExists(f"demo: expected a new directory, {out} exists; choose another --out or remove it")
        return Path(out)
    names = (Path(f"bcmdist-demo{'' if k == 1 else f'-{k}'}") for k in range(1, 1000))
    return next(name for name in names if not name.exists())


def run(out, runtime, *, sizes, sigma, seed) -> dict:
    """Generate data, fit, predict and score below the directory `out`; return the figures, ready for JSON."""
    refuse_seed(seed)
    if not sigma >= 0 or not np.isfinite(sigma):
        raise InvalidOption(f"sigma: expected a finite number of at least 0, got {sigma}; correct it")
    start = time.perf_counter()
    train, test = str(out / "train.zarr"), str(out / "test.zarr")
    majority = _write_data(train, test, sizes, sigma, seed)
    data_seconds = time.perf_counter() - start
    settings = Settings(task="classification", kernel="se", query=QUERY, rows_per_expert=ROWS_PER_EXPERT, seed=seed)
    gbcm = GBCM.prepare(train, settings, model=out / "model", runtime=runtime)
    curve, score_seconds = [], 0.0
    parts = partitions(open_data(train), ROWS_PER_EXPERT)
    for end in sorted({max(1, round(share * len(parts))) for share in CURVE}):
        gbcm = gbcm.absorb(parts[:end], runtime=runtime)
        tick = time.perf_counter()
        scores = gbcm.score(test, y="y_noise_free", runtime=runtime)
        score_seconds += time.perf_counter() - tick
        curve.append({"rows": gbcm.committee.total.rows, **{n: scores[n] for n in ("accuracy", "log_loss")}})
    tick = time.perf_counter()
    scored = gbcm.scores(test, runtime=runtime)
    noisy = scored.summary()
    gbcm.predict_zarr(test, out / "predictions.zarr", runtime=runtime)
    predict_seconds = time.perf_counter() - tick
    seconds = time.perf_counter() - start
    return {
        "rows": gbcm.committee.total.rows,
        "experts": len(gbcm.ledger),
        "query": len(gbcm.model.query.points),
        "seconds": seconds,
        "seconds_by_stage": {
            "data": data_seconds,
            **gbcm.facts["seconds"],
            "learning curve": score_seconds,
            "predict": predict_seconds,
        },
        "rows_per_second": gbcm.committee.total.rows / seconds,
        "majority_share": majority,
        "accuracy_noise_free": scores["accuracy"],
        "accuracy_noisy": noisy["accuracy"],
        "log_loss": noisy["log_loss"],
        "ece": noisy["ece"],
        "trust": verdict(scored),
        "test_rows": int(scored.totals["rows"]),
        "p_eff": gbcm.committee.degrees_of_freedom,
        "curve": curve,
        "sigma": sigma,
        "seed": seed,
        "out": str(out),
    }


def _write_data(train, test, sizes, sigma, seed):
    """Write both parts as Zarr; return the share of the larger noise-free class in the test part."""
    for part, (url, rows) in enumerate([(train, sizes.rows), (test, sizes.test_rows)]):
        columns = make_rows(rows, sigma=sigma, seed=seed, part=part)
        write_dataset(url, columns, rows_per_chunk=ROWS_PER_CHUNK)
    share = float(columns["y_noise_free"].mean())
    return max(share, 1.0 - share)


def draw(out, figures) -> list[str]:
    """Draw the learning curve and the reliability diagram; return their paths.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    paper.available()
    curve, reliability = str(out / "learning_curve.png"), str(out / "reliability.png")
    details = {name: figures.get(name) for name in ("majority_share", "test_rows")}
    learning_curve(curve, figures["curve"], **details)
    probability = np.asarray(open_group(out / "predictions.zarr")["probability"][...])  # type: ignore[index]
    y = np.asarray(open_group(out / "test.zarr")["y"][...])  # type: ignore[index]
    scores = class_scores(y, {"probability": probability})
    score_picture(reliability, scores)
    return [curve, reliability]
