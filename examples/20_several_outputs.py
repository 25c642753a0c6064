"""Metals in soil, of which some are missing at some places: each is predicted with the help of the others.

A table in long form has one row for each measurement, and a column that names what was measured. Outputs that were not
measured at a place are rows that are not there. On the command line:

    bcmdist fit long.csv --y value --output metal --target-transform log --model model
    bcmdist predict model places.csv --out predicted.csv        # without a column `metal`: all metals at each place
    bcmdist score model test.csv                                # of each metal, too
"""

import sys

import numpy as np
import pandas as pd

from bcmdist import GBCM, Settings

METALS = ["cadmium", "lead", "zinc"]
SIZES = {"cadmium": 0.5, "lead": 5.0, "zinc": 6.0}  # mean logarithms of ppm


def soil(places, rng):
    """A table in wide form: what a river has left in its flood plain, and what each metal has alone."""
    east, north = rng.uniform(0, 3, (2, places))
    common = np.sin(2 * east) * np.cos(1.5 * north) + 0.8 * np.sin(3 * north + east)
    wide = pd.DataFrame({"place": np.arange(places), "east": east, "north": north})
    for metal, share in zip(METALS, (0.9, 0.7, 0.8), strict=True):
        own = 0.3 * np.sin(4 * east + 6 * share) + 0.1 * rng.standard_normal(places)
        wide[metal] = np.exp(SIZES[metal] + share * common + own)
    return wide


def main(places):
    rng = np.random.default_rng(20)
    wide = soil(places, rng)
    long = wide.melt(["place", "east", "north"], METALS, "metal", "value")
    missing = (long.metal == "cadmium") & long.place.isin(rng.permutation(places)[: places // 3])
    train, test = long[~missing], long[missing]

    how = {"target_transform": "log", "kernel": "matern52", "effort": "quick", "partition": "chunks"}
    together = GBCM.fit(train[["metal", "east", "north"]], train["value"], Settings(output="metal", **how))
    cadmium = train[train.metal == "cadmium"]
    alone = GBCM.fit(cadmium[["east", "north"]], cadmium["value"], Settings(**how))
    for name, model in (("all metals", together), ("cadmium alone", alone)):
        found = model.score(
            test[["metal", "east", "north"]] if model is together else test[["east", "north"]], test.value
        )
        print(f"cadmium where it is missing, from {name}: RMSE {found['rmse']:.2f} ppm, -log p {found['mnlp']:.2f}")

    outputs = together.info()["outputs"]
    print("correlations of", *outputs["names"], np.round(outputs["correlation"], 2).tolist())
    new = wide[["east", "north"]].head(3)
    print(together.predict_frame(new)[[f"observation_mean_{metal}" for metal in METALS]].round(2))
    here = pd.DataFrame({"metal": METALS, "east": 1.0, "north": 1.0})
    _, covariance = together.predict_joint(here)
    print("standard errors of the logarithms at one place:", np.sqrt(np.diag(covariance)).round(2))


if __name__ == "__main__":
    main(60 if "--quick" in sys.argv else 200)
