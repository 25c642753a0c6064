"""Prices as a sum of terms: a smooth map, a curve of age, a cycle of hours, a slope, and a category.

A kernel by column says how columns act: together in one function, or each on its own and added up. Less has to be
learned, effects can be shown one by one, and beyond the rows a cycle repeats and a slope goes on. On the command line:

    bcmdist fit prices.csv --y price --model model --mean constant \
        --kernel "matern32(lon, lat) + se(age) + periodic(hour, period=24) + linear(rooms) + category(district)"
    bcmdist plot model --what effects
    bcmdist predict model new.csv --out predicted.csv --terms
"""

import sys

import numpy as np
import pandas as pd

from bcmdist import GBCMRegressor

KERNEL = "matern32(lon, lat) + se(age) + periodic(hour, period=24) + linear(rooms) + category(district)"
DISTRICT = {"east": 0.0, "north": 3.0, "south": -3.0, "west": 6.0}


def prices(rows, rng, days=1):
    """Rows of a table, and prices with a noise of 1; hours run through several days."""
    X = pd.DataFrame(
        {
            "lon": rng.uniform(-2, 2, rows),
            "lat": rng.uniform(-2, 2, rows),
            "age": rng.uniform(0, 80, rows),
            "hour": rng.uniform(0, 24 * days, rows),
            "rooms": rng.integers(1, 8, rows),
            "district": rng.choice(list(DISTRICT), rows),
        }
    )
    y = 100 + 8 * np.sin(2 * X.lon) * np.cos(X.lat) + 10 * np.exp(-X.age / 20)
    y += 5 * np.sin(2 * np.pi * X.hour / 24) + 4 * X.rooms + X.district.map(DISTRICT)
    return X, y.to_numpy() + rng.standard_normal(rows)


def main(rows):
    rng = np.random.default_rng(18)
    X, y = prices(rows, rng)
    new, truth = prices(500, rng, days=30)
    for kernel in ("auto", KERNEL):
        fitted = GBCMRegressor(kernel=kernel, mean="constant", query=150, effort="quick", random_state=0).fit(X, y)
        error = np.sqrt(np.mean((fitted.predict(new) - truth) ** 2))
        print(f"{kernel}: RMSE {error:.2f} on later days, where noise alone has 1.00")
    info = fitted.gbcm_.info()
    print("share of the variance of predictions:", {name: round(share, 2) for name, share in info["terms"].items()})
    found = fitted.predict_terms(new)
    slope = found["term_mean"][:, found["term"].tolist().index("linear(rooms)")]
    print(f"a room costs {np.polyfit(new.rooms, slope, 1)[0]:.2f}, 4 in truth")
    total = found["term_mean"].sum(axis=1)
    print("terms add up:", np.allclose(total, fitted.predict(new)))


if __name__ == "__main__":
    main(300 if "--quick" in sys.argv else 1500)
