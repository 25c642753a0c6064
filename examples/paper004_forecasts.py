"""Forecasts over many steps, as in J. Quinonero-Candela's thesis "Learning with Uncertainty" (2004), papers D and E.

    python paper004_forecasts.py [--quick]

- Mackey-Glass (paper D): noise of variance .001, 100 rows, 16 lags, 100 steps.
- A pH neutralisation process (paper E; Henson and Seborg 1994): the flow of base drives the pH of a tank; 8 lags of
  both, 1228 rows, 10 steps. The flow of the next steps is known ahead.
- Counts of bicycles that are rented in an hour (not in the thesis; only where the data are, in the folder of the
  variable BCMDIST_DATA): log(1 + count) from the last 24 hours and the hour, weekday and weather, 24 hours ahead, over
  a year that the model has not seen. Hours that are missing are passed over. More is rented in that year: bands are
  about the level of the year before, so that too few counts lie within; a model that goes on absorbing (`ingest
  --half-life`) does not lag behind.

L1 and L2 are mean absolute and squared errors, L3 the mean negative log density (the thesis's losses), of all steps; of
the pH, as in the thesis, of the tenth only. The thesis's table of paper D is of other starts and another sampling of
the series, and the test set of paper E has unknown size: what may be compared is the order of the ways. Variances
without the noise of what is measured (the thesis's) would be smaller.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from paper004_mackey_glass import mackey_glass
from scipy.optimize import brentq

from bcmdist import GBCM, Settings
from bcmdist.data.tables.series import Lags

WAYS = ("naive", "taylor", "exact", "montecarlo")
PAPER = {  # L1, L2, L3
    ("Mackey-Glass", "exact"): (0.4574, 0.3397, 0.8473),
    ("Mackey-Glass", "taylor"): (0.5409, 0.4609, 1.1300),
    ("Mackey-Glass", "montecarlo"): (0.4886, 0.3765, 0.8979),
    ("pH", "taylor"): (0.1716, 0.0574, 0.6208),
    ("pH", "naive"): (np.nan, np.nan, 1980.2),
}

# The tank: flows in ml/s and concentrations in mol/l of acid, buffer and base; volume in ml.
ACID, BUFFER = (16.6, 3e-3, 0.0), (0.55, -0.03, 0.03)  # flow, charge, carbonate
BASE = (-3.05e-3, 5e-5)
VOLUME, SECONDS, PK1, PK2 = 2900.0, 25.0, 6.35, 10.25


def ph_of(charge, carbonate) -> float:
    """The pH at which all charges balance."""

    def balance(ph):
        dissolved = (1.0 + 2.0 * 10.0 ** (ph - PK2)) / (1.0 + 10.0 ** (PK1 - ph) + 10.0 ** (ph - PK2))
        return charge + 10.0 ** (ph - 14.0) - 10.0**-ph + carbonate * dissolved

    return brentq(balance, 0.0, 14.0)


def neutralised(samples, rng) -> tuple[np.ndarray, np.ndarray]:
    """The flow of base, which changes at random, and the pH it leads to, once every 25 seconds, (samples,) each."""
    flow = np.repeat(rng.uniform(12.5, 17.0, samples // 5 + 1), 5)[:samples]
    state, ph = np.array([-4.3e-4, 5.3e-4]), np.empty(samples)
    for t, base in enumerate(flow):
        flows = np.array([ACID[0], BUFFER[0], base])
        entering = np.array([ACID[1:], BUFFER[1:], BASE])
        goal, rate = flows @ entering / flows.sum(), flows.sum() / VOLUME
        state = goal + (state - goal) * np.exp(-rate * SECONDS)
        ph[t] = ph_of(*state)
    return flow, ph + 0.02 * rng.standard_normal(samples)


def told(title, lags, values, rows, starts, steps, settings, *, only_last=False) -> None:
    """Print the losses of all ways of forecasting, from some starts behind the rows that were learned from.

    Parameters
    ----------
    values : (N, 1 + E), the series and what is known
    """
    X, y = lags.rows(values), values[lags.before :, 0]
    frame = pd.DataFrame(X, columns=list(lags.columns))
    gbcm = GBCM.fit(frame[:rows], y[:rows], settings)
    ahead = np.asarray(starts)[:, None] + np.arange(steps)
    truth, known = y[ahead], X[ahead, lags.lags :]
    print(f"\n{title}: {rows} rows, {steps} steps from {len(starts)} starts")
    print(f"{'':14}{'L1':>9}{'L2':>9}{'L3':>9}{'95 % hold':>11}{'thesis: L1':>13}{'L2':>9}{'L3':>11}")
    for way in WAYS:
        said = gbcm.forecast(X[starts, : lags.lags], steps, known=known, inputs=way)
        last = slice(-1 if only_last else None, None)
        error, variance = (truth - said.mean)[:, last], said.variance[:, last]
        density = 0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)
        inside = np.mean((truth > said.lower95) & (truth < said.upper95))
        thesis = PAPER.get((title, way), (np.nan,) * 3)
        losses = "".join(f"{loss.mean():9.4f}" for loss in (abs(error), error**2, density))
        print(f"{way:14}{losses}{inside:11.3f}{thesis[0]:13.4f}{thesis[1]:9.4f}{thesis[2]:11.4f}")


def main(quick):
    rng = np.random.default_rng(0)
    starts, query = (8, 50) if quick else (200, 100)
    settings = Settings(partition="chunks", kernel="se", query=query, effort="quick" if quick else "normal")

    steps = 20 if quick else 100
    z = mackey_glass(116 + 50 + starts + steps)
    z = z + np.sqrt(1e-3) * rng.standard_normal(len(z))
    told("Mackey-Glass", Lags("z", 16), z[:, None], 100, 150 + np.arange(starts), steps, settings)

    flow, ph = neutralised(1236 + starts + 20, rng)
    both = np.column_stack([ph, flow])
    both = (both - both[:1228].mean(axis=0)) / both[:1228].std(axis=0)
    told("pH", Lags("pH", 8, ("flow",), 8), both, 1228, 1228 + np.arange(starts), 10, settings, only_last=True)

    bikes = Path(os.environ.get("BCMDIST_DATA", ""), "bike_hourly_counts.npz")
    if bikes.exists():
        with np.load(bikes, allow_pickle=False) as arrays:
            X, names = arrays["X"].astype(float), arrays["feature_names"].tolist()
            counts = np.log1p(arrays["y"].astype(float))
        angle = 2.0 * np.pi * X[:, names.index("hour")] / 24.0
        others = [X[:, names.index(name)] for name in ("working_day", "weather", "temp", "humidity")]
        values = np.column_stack([counts, np.sin(angle), np.cos(angle), *others])
        lags = Lags("rented", 24, ("sin", "cos", "working_day", "weather", "temp", "humidity"))
        rows = 1000 if quick else 8000
        begun = rows + np.linspace(0, len(values) - rows - 60, starts).astype(int)
        told("bicycles, log(1 + count)", lags, values, rows, begun, 24, settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rows, starts and steps")
    main(parser.parse_args().quick)
