"""A textbook case beside GSTools: zinc in the flood plain of the Meuse, by kriging and by Gaussian processes.

    BCMDIST_DATA=... python tests/benchmarks/textbook.py          writes results/textbook.json (pip install gstools)

155 places (Pebesma's data set `meuse`), logarithms of zinc in ppm, coordinates in km. GSTools fits an exponential model
with nugget to the empirical variogram; here the same kernel is learned by maximum likelihood. Both hold what they
learned from all places, and predict places that are left out: ten random folds, or strips of about equally many places
along the river. External drift is the square root of the distance to the river. Scores are of the logarithm.
"""

import argparse
import json
import os
import platform
import warnings
from importlib.metadata import version
from pathlib import Path

import gstools
import numpy as np

from bcmdist import GBCM, Settings
from bcmdist.errors import BcmdistWarning

RESULTS = Path(__file__).parent / "results" / "textbook.json"
STRIPS, FOLDS = 8, 10
LEAST_NUGGET = 0.01  # of the same hyper-parameters in both, where the fitted nugget is 0
WHOLE = {"partition": "chunks", "target_transform": "none", "noise": "constant", "warp": "none"}
ANGLES = (0, 15, 30, 45, 60, 75)  # the axes at a + 90 degrees are those at a


def meuse() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates (155, 2) in km, square root of the distance to the river (155,), log zinc (155,)."""
    with np.load(Path(os.environ["BCMDIST_DATA"], "meuse.npz")) as arrays:
        X, Y = arrays["X"].astype(float), arrays["y"].astype(float)
    return X[:, :2] / 1e3, np.sqrt(X[:, 2]), np.log(Y[:, 3])


def strips(places) -> np.ndarray:
    """Number of the strip of each place along the direction of largest variance, (n,)."""
    centred = places - places.mean(axis=0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    return np.argsort(np.argsort(along)) * STRIPS // len(along)


def fitted_variogram(places, y):
    """Exponential variogram with nugget, fitted to the empirical one up to half the largest distance."""
    edges = np.linspace(0.0, 2.0, 16)
    centres, gamma, pairs = gstools.vario_estimate(places.T, y, edges, return_counts=True)
    model = gstools.Exponential(dim=2)
    model.fit_variogram(centres, gamma, nugget=True, weights=np.sqrt(pairs))
    return model


def with_nugget(model):
    """The same exponential model with a nugget of at least `LEAST_NUGGET`."""
    nugget = max(model.nugget, LEAST_NUGGET)
    return gstools.Exponential(dim=2, var=model.var, len_scale=model.len_scale, nugget=nugget)


def kriging(model, places, y, drift=None):
    """Function that predicts places left out: mean and variance, the nugget included, as of an observation."""

    def predict(kept, out):
        given = {"ext_drift": drift[kept]} if drift is not None else {}
        krige = gstools.krige.Krige(model, places[kept].T, y[kept], unbiased=True, exact=False, **given)
        more = {"ext_drift": drift[out]} if drift is not None else {}
        return krige(places[out].T, **more)

    return predict


def scores_of(predict, y, labels) -> dict:
    """RMSE, and the share of 95 % intervals that contain the value left out."""
    mean, variance = np.empty(len(y)), np.empty(len(y))
    for label in np.unique(labels):
        kept, out = np.flatnonzero(labels != label), np.flatnonzero(labels == label)
        mean[out], variance[out] = predict(kept, out)
    inside = np.abs(y - mean) <= 1.959964 * np.sqrt(variance)
    return {"rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "coverage95": float(inside.mean())}


def of_model(X, y, kernel, labels_of) -> tuple[GBCM, dict]:
    """A model of all places, and its scores by the labels of folds."""
    settings = Settings(kernel=kernel, mean="constant", query=len(y), effort="quick", **WHOLE)
    gbcm, found = GBCM.fit(X, y, settings), {}
    for name, labels in labels_of.items():
        result = gbcm.cross_validate(X, y, folds=len(np.unique(labels)), by=labels)
        found[name] = {"rmse": result.scores["rmse"], "coverage95": result.scores["coverage95"]}
    return gbcm, found


def agreement(model, places, y, new) -> dict:
    """Largest difference of simple kriging and a Gaussian process of the same hyper-parameters, all rows as queries."""
    mean, variance = gstools.krige.Simple(model, places.T, y, mean=y.mean(), exact=False)(new.T)
    found = same_model(model, places, y).predict(new)
    return {
        "mean": float(np.abs(found["mean"] - mean).max()),
        "variance": float(np.abs(found["observation_variance"] - variance).max()),
    }


def same_model(model, places, y, kernel="matern12", factor=1.0) -> GBCM:
    """Gaussian process with the variance, length and nugget of a model of GSTools, whose length times `factor` is the
    lengthscale of the kernel."""
    given = {
        "kernel.variance": model.var / y.std() ** 2,
        "kernel.lengthscale": (factor * model.len_scale / places.std(axis=0)).tolist(),
        "likelihood.noise_variance": model.nugget / y.std() ** 2,
    }
    return GBCM.fit(places, y, Settings(kernel=kernel, mean="zero", learn=False, set=given, query=len(y), **WHOLE))


def turned(places, degrees) -> np.ndarray:
    """Coordinates (n, 2) along and across a direction, in degrees from the first axis."""
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return (places - places.mean(axis=0)) @ np.array([[c, -s], [s, c]])


def natural(gbcm) -> dict:
    """Sill, nugget and lengthscales (km) of a model with one exponential kernel."""
    parameters, scale = gbcm.model.shared.kernel.parameters, gbcm.model.scaling
    name = next(name for name in parameters if name.endswith("lengthscale"))
    lengths = np.asarray(parameters[name]) * scale.x_scale[: len(parameters[name])]
    variance = parameters[name.replace("lengthscale", "variance")][0]
    noise = gbcm.model.likelihood.parameters["noise_variance"][0]
    return {
        "sill": float(variance * scale.y_scale**2),
        "nugget": float(noise * scale.y_scale**2),
        "lengths_km": [float(one) for one in lengths],
    }


def main() -> dict:
    places, drift, y = meuse()
    random = np.random.default_rng(0).permutation(len(y)) % FOLDS
    labels = {"random": random, "strips": strips(places)}
    model, methods = fitted_variogram(places, y), {}
    for name, ext in (("gstools", None), ("gstools_drift", drift)):
        own = model
        if ext is not None:
            line = np.polyfit(ext, y, 1)
            own = fitted_variogram(places, y - np.polyval(line, ext))
        methods[name] = {by: scores_of(kriging(own, places, y, ext), y, one) for by, one in labels.items()}
        methods[name]["parameters"] = {"sill": own.var, "nugget": own.nugget, "lengths_km": [own.len_scale]}
    for name, X, kernel in (
        ("bcmdist", places, "matern12"),
        ("bcmdist_drift", np.column_stack([places, drift]), "matern12(0, 1) + linear(2)"),
    ):
        gbcm, methods[name] = of_model(X, y, kernel, labels)
        methods[name]["parameters"] = natural(gbcm)
    evidence = {a: of_model(turned(places, a), y, "matern12", {})[0].info()["log_evidence"] for a in ANGLES}
    best = max(evidence, key=evidence.__getitem__)
    gbcm, methods["bcmdist_turned"] = of_model(turned(places, best), y, "matern12", labels)
    methods["bcmdist_turned"]["parameters"] = natural(gbcm)
    rng = np.random.default_rng(0)
    new = rng.uniform(places.min(axis=0), places.max(axis=0), (200, 2))
    return {
        "made_by": "python tests/benchmarks/textbook.py",
        "versions": {name: version(name) for name in ("gstools", "numpy", "scipy")}
        | {"python": platform.python_version()},
        "rows": len(y),
        "strips": STRIPS,
        "folds": FOLDS,
        "methods": methods,
        "turned": {"log_evidence": evidence, "best": best},
        "agreement": agreement(with_nugget(model), places, y, new),
    }


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore", BcmdistWarning)
    found = main()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
