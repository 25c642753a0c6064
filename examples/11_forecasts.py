"""Forecasts of a series over many steps, and predictions where inputs are not known exactly.

    python 11_forecasts.py [--quick]

The level of a reservoir swings back to its mean, with inflows that nobody foresees. A model of the next level from the
last ones forecasts two days, going on from what it has itself predicted: `naive` takes that for measured, and its
intervals are far too narrow; the others carry its uncertainty along. From a table the same is done by `bcmdist import
--lags` and `bcmdist forecast`.
"""

import argparse

import numpy as np
import pandas as pd

from bcmdist import GBCM, Settings

LAGS, STEPS, SERIES = 4, 48, 40


def levels(hours, rng) -> np.ndarray:
    """Once an hour, (hours,)."""
    y = np.zeros(hours + 100)
    for t in range(2, len(y)):
        y[t] = 1.6 * np.tanh(y[t - 1]) - 0.8 * y[t - 2] + 0.1 * rng.standard_normal()
    return y[100:]


def with_lags(y) -> tuple[pd.DataFrame, np.ndarray]:
    """The values before each one, the newest first, and these."""
    windows = np.lib.stride_tricks.sliding_window_view(y, LAGS + 1)
    return pd.DataFrame(windows[:, -2::-1], columns=[f"level[t-{k + 1}]" for k in range(LAGS)]), windows[:, -1]


def main(rows) -> None:
    rng = np.random.default_rng(0)
    y = levels(rows + LAGS + SERIES * STEPS, rng)
    X, targets = with_lags(y)
    gbcm = GBCM.fit(X[:rows], targets[:rows], Settings(query=100, kernel="se"))

    starts = rows + STEPS * np.arange(SERIES)
    truth = np.stack([targets[start : start + STEPS] for start in starts])
    print(f"{STEPS} hours ahead, {SERIES} times:  rms error   sd said at the end   95 % intervals hold")
    for way in ("naive", "exact", "taylor", "montecarlo"):
        said = gbcm.forecast(X.iloc[starts], STEPS, inputs=way)
        error = np.sqrt(np.mean((said.mean - truth) ** 2))
        inside = np.mean((truth > said.lower95) & (truth < said.upper95))
        print(f"  {way:<26} {error:10.3f} {np.sqrt(said.variance[:, -1].mean()):20.3f} {inside:20.3f}")

    vague = np.tile(np.where(np.arange(LAGS) == 0, 0.3**2, 0.0), (3, 1))  # the newest level was hardly read
    exactly, vaguely = gbcm.predict(X.iloc[:3]), gbcm.predict(X.iloc[:3], X_variance=vague)
    print("sd of the next level:", np.sqrt(exactly["observation_variance"]).round(3), "where the last one is known,")
    print(" " * 20, np.sqrt(vaguely["observation_variance"]).round(3), "where it is known to .3")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    main(400 if parser.parse_args().quick else 2000)
