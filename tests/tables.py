"""Tables as people have them, at random: rents, prices, a sensor's log, sales and churn, as data frames."""

import numpy as np
import pandas as pd

TARGETS = {"rents": "rent", "prices": "price", "sensor": "ozone", "sales": "sold", "churn": "left"}
"""the target of each table"""


def rents(rng, rows):
    """Texts, dates, a rare category, gaps, an identifier, a skewed target, and a few gross errors of it."""
    area, floor = rng.lognormal(4.2, 0.4, rows), rng.integers(0, 6, rows)
    quarter = rng.choice(["centre", "harbour", "hills", "station", "meadow"], rows, p=[0.3, 0.25, 0.2, 0.23, 0.02])
    built = rng.integers(1900, 2024, rows)
    since = np.datetime64("2015-01-01") + rng.integers(0, 3600, rows)
    level = {"centre": 0.35, "harbour": 0.2, "hills": 0.1, "station": -0.1, "meadow": 0.0}
    years = (since - np.datetime64("2015-01-01")).astype(int) / 365.25
    log = 2.4 + 0.85 * np.log(area) + np.array([level[q] for q in quarter]) + 0.03 * years
    log += 0.15 * np.abs(built - 1965) / 60 - 0.02 * (floor == 0) + 0.18 * rng.standard_normal(rows)
    rent = np.exp(log)
    wrong = rng.choice(rows, max(1, rows // 1200), replace=False)
    rent[wrong] *= rng.choice([10.0, 100.0], len(wrong))
    frame = pd.DataFrame({"flat": [f"F{k:06d}" for k in range(rows)], "area": area, "floor": floor})
    frame = frame.assign(quarter=quarter, built=built.astype(float), since=since, rent=rent.round(2))
    frame.loc[rng.random(rows) < 0.08, "built"] = np.nan
    frame.loc[rng.random(rows) < 0.03, "quarter"] = None
    return frame


def prices(rng, rows):
    """A price that rises with the date and goes round with the season."""
    day = rng.integers(0, 1500, rows)
    size, grade = rng.gamma(4.0, 30.0, rows), rng.choice(list("ABCD"), rows)
    log = 7.0 + 0.6 * np.log(size) + 0.0004 * day + 0.1 * np.sin(2 * np.pi * day / 365.25) + 0.12 * (grade == "A")
    price = np.exp(log + 0.1 * rng.standard_t(4, rows))
    dates = np.datetime64("2021-01-01") + day
    return pd.DataFrame({"sold_on": dates, "size": size, "grade": grade, "price": price.round(0)})


def sensor(rng, rows):
    """Hourly values, with gaps in runs, of a smooth and noisy field of time and weather."""
    hour = np.sort(rng.choice(4 * rows, rows, replace=False))
    temperature = 12 + 8 * np.sin(2 * np.pi * hour / 24) + 5 * np.sin(2 * np.pi * hour / 2000) + rng.normal(0, 2, rows)
    wind = rng.gamma(2.0, 2.0, rows)
    ozone = 40 + 2.5 * np.maximum(temperature - 10, 0) - 4 * np.log1p(wind) + 6 * rng.standard_normal(rows)
    frame = pd.DataFrame({"time": np.datetime64("2026-01-01T00") + hour.astype("m8[h]"), "temperature": temperature})
    frame = frame.assign(wind=wind, ozone=ozone)
    for start in rng.choice(rows - 40, 4, replace=False):
        frame.loc[start : start + 30, "wind"] = np.nan
    return frame


def sales(rng, rows):
    """Counts, two thirds of them zero."""
    price, weekday = rng.uniform(1, 10, rows), rng.integers(0, 7, rows)
    shop = rng.choice(["a", "b", "c", "d"], rows)
    rate = np.exp(0.8 - 0.35 * price + 0.5 * (weekday > 4) + 0.4 * (shop == "a")) * rng.gamma(2.0, 0.5, rows)
    return pd.DataFrame({"price": price, "weekday": weekday, "shop": shop, "sold": rng.poisson(rate)})


def churn(rng, rows):
    """Two classes, one of them rare, that interact."""
    months, calls = rng.exponential(20.0, rows), rng.poisson(1.5, rows)
    plan = rng.choice(["basic", "plus", "pro"], rows, p=[0.6, 0.3, 0.1])
    logit = -2.2 - 0.03 * months + 0.5 * calls * (months < 12) - 0.8 * (plan == "pro")
    left = np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-logit)), "yes", "no")
    frame = pd.DataFrame({"months": months, "calls": calls.astype(float), "plan": plan, "left": left})
    frame.loc[rng.random(rows) < 0.05, "calls"] = np.nan
    return frame


TABLES = {"rents": rents, "prices": prices, "sensor": sensor, "sales": sales, "churn": churn}
