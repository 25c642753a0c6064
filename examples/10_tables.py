"""A table with texts, dates and gaps: fitted, scored and predicted as it is.

Texts become an input for each level, dates UTC days (here also a place in the year), gaps the mean beside an input that
says so. How is stored with the model, so that new tables may have their columns in any order, and levels that nobody
knew: these are refused, or, as here, a level of its own, which is less certain. (A linear mean knows nothing of such a
level's part, so that intervals would be as wide as its prior.) The same on the command line:

    bcmdist fit houses.csv --y price --model model --mean constant --missing indicate --cyclic sold=year
    bcmdist score model later.csv
    bcmdist predict model new.csv --out predicted.csv --unseen other
"""

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.carry_out import carry_out
from bcmdist.api.requests import FitRequest, PredictRequest, ScoreRequest
from bcmdist.data.tables.options import TableOptions

PREMIUM = {"garden": 30.0, "balcony": 10.0, "none": 0.0}


def houses(rows, rng):
    """Rows of a table: prices by area, by season and by what is outside; some areas are not known."""
    day, area = rng.integers(0, 730, rows), rng.uniform(30, 150, rows)
    outside = rng.choice(list(PREMIUM), rows)
    price = 2 * area + 15 * np.sin(2 * np.pi * day / 365.2425) + [PREMIUM[one] for one in outside]
    price += 4 * rng.standard_normal(rows)
    known = rng.uniform(size=rows) > 0.05
    for k in range(rows):
        sold = f"{np.datetime64('2024-01-01') + day[k]}T12:00Z"
        yield {
            "outside": outside[k],
            "sold": sold,
            "area": f"{area[k]:.1f}" if known[k] else "",
            "price": f"{price[k]:.1f}",
        }


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return str(path)


def main(rows):
    rng = np.random.default_rng(10)
    with tempfile.TemporaryDirectory() as folder:
        place, model = Path(folder), str(Path(folder, "model"))
        train = write(place / "houses.csv", list(houses(rows, rng)))
        later = write(place / "later.csv", list(houses(500, rng)))
        settings = Settings(y="price", query=100, rows_per_expert=500, kernel="se", mean="constant", effort="quick")
        table = TableOptions(missing="indicate", cyclic=["sold=year"])
        carry_out(FitRequest(train, model, settings, table=table), SerialRuntime)
        for column, code in GBCM.load(model).info()["coded"].items():
            print(f"{column}: {code}")
        scores = carry_out(ScoreRequest(model, later), SerialRuntime)
        print(f"rmse {scores['rmse']:.1f} (noise 4), coverage of 95 % intervals {scores['coverage95']:.3f}")
        new = [{"area": "80", "outside": outside, "sold": "2025-12-24T12:00Z"} for outside in ("garden", "terrace")]
        out = str(place / "predicted.csv")
        carry_out(PredictRequest(model, write(place / "new.csv", new), out, unseen="other"), SerialRuntime)
        with open(out, newline="", encoding="utf-8") as file:
            for row, told in zip(new, csv.DictReader(file), strict=True):
                low, high = (float(told[name]) for name in ("lower95", "upper95"))
                print(f"80 m2 with {row['outside']}: {float(told['mean']):.0f}, between {low:.0f} and {high:.0f}")


if __name__ == "__main__":
    main(1000 if "--quick" in sys.argv else 10_000)
