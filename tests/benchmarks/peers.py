"""Methods of `python -m benchmarks`: ours by the command line, and their peers by what their documentation recommends.

A peer is one declaration: a function of training and test rows (baselines.py, peer_models.py, families.py) that gives
predictions, the tasks it is for, and the packages it needs. The function documents their settings.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import baselines
from families import event_figures, negative_binomial_glm, poisson_glm, read_rows, weibull_glm
from peer_models import MODELS, lightgbm_counts

NUMBERS, ANY = ("regression",), ("regression", "classification")
EVENTS = ("counts", "lifetimes")
Figures = Mapping[str, object]


@dataclass(frozen=True)
class Method:
    """One method: `options` of `bcmdist fit`, or the function of a peer."""

    title: str
    tasks: tuple[str, ...]
    packages: tuple[str, ...]
    """distributions whose versions are recorded"""
    options: tuple[str, ...] = ()
    work: Callable[[Path, str, float], Figures] | None = None
    """figures from a folder with train.zarr and test.zarr, the task, and when training has to end; None: ours"""
    fields_only: bool = False
    """whether it is for two coordinates only"""
    most_rows: int | None = None
    """beyond which memory is not enough"""


def by_baseline(baseline, folder, task, deadline):
    """Figures of a `Baseline`."""
    parts = (baselines.read(folder / f"{part}.zarr") for part in ("train", "test"))
    return baselines.figures_by(baseline, *parts, task, deadline)


def by_law(law, needs, folder, task, deadline):
    """Figures of a function that gives a scipy distribution for each test row."""
    importlib.import_module(needs)
    train, test = read_rows(folder)
    figures = event_figures(law(train, test), train, test, task == "counts")
    return {name: float(value) for name, value in figures.items()} | {"note": ""}


def peer(title, baseline, *packages, tasks=NUMBERS, **limits):
    return Method(title, tasks, packages, work=partial(by_baseline, baseline), **limits)


def law(title, function, package, task):
    return Method(title, (task,), (package,), work=partial(by_law, function, package))


REFERENCE = "reference"
"""What is stored with a set, or what its truth gives."""

METHODS = {
    "bcmdist": Method("bcmdist", (*ANY, *EVENTS), ("bcmdist", "dask", "zarr")),
    "bcmdist_chunks": Method(
        "bcmdist, one pass", (*ANY, *EVENTS), ("bcmdist", "dask", "zarr"), ("--partition", "chunks")
    ),
    "gpytorch_exact": peer("GPyTorch exact", MODELS["exact"], "gpytorch", "torch", most_rows=20_000),
    "gpytorch_svgp": peer("GPyTorch SVGP", baselines.BASELINES["svgp"], "gpytorch", "torch", tasks=ANY),
    "gpboost": peer("GPBoost Vecchia", baselines.BASELINES["gpboost"], "gpboost"),
    "gpboost_vif": peer("GPBoost VIF", MODELS["gpboost_vif"], "gpboost"),
    "muygps": peer("MuyGPyS", MODELS["muygps"], "MuyGPyS"),
    "gstools": peer("GSTools kriging", MODELS["gstools"], "gstools", fields_only=True),
    "fvgp": peer("fvGP", MODELS["fvgp"], "fvgp"),
    "sklearn_gp": peer("scikit-learn GP", MODELS["sklearn_gp"], "scikit-learn"),
    "lightgbm": peer("LightGBM", baselines.BASELINES["lightgbm"], "lightgbm", tasks=ANY),
    "lightgbm_quantiles": peer("LightGBM quantiles", MODELS["lightgbm_quantiles"], "lightgbm"),
    "ngboost": peer("NGBoost", MODELS["ngboost"], "ngboost", tasks=ANY),
    "sklearn_hgb": peer("scikit-learn HGB", baselines.BASELINES["hgb"], "scikit-learn", tasks=ANY),
    "linear": peer("linear model", baselines.BASELINES["linear"], "scikit-learn", tasks=ANY),
    "poisson_glm": law("statsmodels Poisson", poisson_glm, "statsmodels", "counts"),
    "negative_binomial_glm": law("statsmodels neg. binomial", negative_binomial_glm, "statsmodels", "counts"),
    "lightgbm_poisson": law("LightGBM Poisson", lightgbm_counts, "lightgbm", "counts"),
    "weibull_aft": law("lifelines Weibull AFT", weibull_glm, "lifelines", "lifetimes"),
    REFERENCE: Method("reference", (), ("numpy", "scipy")),
}


def methods_of(data_set) -> list[str]:
    """Methods that are for a set, in the order of the tables."""
    return [
        name
        for name, method in METHODS.items()
        if (data_set.task in method.tasks and (data_set.field or not method.fields_only))
        or (name == REFERENCE and data_set.reference)
    ]


def figures_of(name: str, folder: Path, task: str, deadline: float) -> Figures:
    """Figures of a peer in this process; `none` says why there are none."""
    try:
        return METHODS[name].work(folder, task, deadline)
    except ImportError as error:
        return {"none": f"not installed: {error.name}"}


def reference_figures(data_set, source: Path) -> Figures:
    """Figures of what is stored with a set or known of its truth, from the file that was imported."""
    with np.load(source) as file:
        arrays = {name: np.asarray(file[name], dtype=float) for name in file.files}
    mean, variance = data_set.reference.predict(arrays)
    predictions = baselines.Predictions(mean, variance)
    return baselines.regression_figures(predictions, arrays["y_train"], arrays["y_test"]) | {"note": ""}
