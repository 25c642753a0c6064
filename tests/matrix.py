"""The page examples/guide/matrix.md: which expert can do what, each cell tried on small tables.

    python tests/matrix.py [EXPERT ...] [--write]

A cell holds "yes" where the call succeeds, else the number of a sentence at the end of the page: what the error says.
"""

import argparse
import re
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import expit

from bcmdist import GBCM, HMC, Settings, write_dataset
from bcmdist.api.requests import RefitOptions
from bcmdist.api.sampling import sample_posterior
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.errors import BcmdistError, MissingExtra, on_command_line

PAGE = Path(__file__).parent.parent / "examples" / "guide" / "matrix.md"
EXPERTS = ("bcm", "fitc", "sor", "rrgp_star", "fourier", "mnn", "mnnmix", "rvm", "rvm_star", "dgp")
N, EACH, WIDTH = 160, 40, 118
SMALL = {"rows_per_expert": EACH, "effort": "quick", "kernel": "se"}
OF_EXPERT = {
    "mnn": {"units": 8},
    "mnnmix": {"units": 6, "networks": 2},
    "dgp": {"query": 12, "units": 6, "layers": 2},
    "fourier": {"tolerance": 0.1},
}
"""what makes each expert small, as `OTHERWISE` the others"""
OTHERWISE = {"query": 12}
TARGETS: dict[str, tuple[str, Callable]] = {
    "numbers": ("regression", lambda f, rng: {"y": f + 0.1 * rng.standard_normal(N)}),
    "two classes": ("classification", lambda f, rng: {"y": (f + 0.3 * rng.standard_normal(N) > 0).astype(int)}),
    "three classes": (
        "classification",
        lambda f, rng: {"y": np.digitize(f + 0.3 * rng.standard_normal(N), [-0.5, 0.5])},
    ),
    "counts": ("counts", lambda f, rng: {"y": rng.poisson(np.exp(f + 1))}),
    "lifetimes": ("lifetimes", lambda f, rng: {"y": np.exp(f) * rng.exponential(size=N), "event": np.ones(N)}),
    "proportions": ("binomial", lambda f, rng: {"y": rng.binomial(9, expit(f)), "trials": np.full(N, 9)}),
}
"""kinds of targets: their task, and their arrays for a function f (N,)"""


def rows(seed=0):
    """Inputs (N, 2), a function of them (N,), and the generator for its noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], rng


class Trial:
    """What an expert is tried with: data sets in a folder, and a model of numbers that predictions start from."""

    def __init__(self, expert: str, folder: Path):
        self.expert, self.folder, self.made = expert, folder, 0
        self._plain: GBCM | None = None

    def new_path(self) -> Path:
        """A new path."""
        self.made += 1
        return self.folder / f"{self.made}"

    def data(self, kind="numbers", seed=0, **arrays) -> Path:
        """A data set with targets of a kind."""
        X, f, rng = rows(seed)
        path = self.new_path().with_suffix(".zarr")
        write_dataset(path, {"X": X, **TARGETS[kind][1](f, rng), **arrays}, rows_per_chunk=EACH)
        return path

    def settings(self, kind="numbers", **how) -> Settings:
        given = {"task": TARGETS[kind][0], "expert": self.expert, "partition": "chunks"}
        return Settings(**(given | SMALL | OF_EXPERT.get(self.expert, OTHERWISE) | how))

    def fit(self, kind="numbers", data=None, **how) -> GBCM:
        return GBCM.fit(data or self.data(kind), self.settings(kind, **how), model=self.new_path())

    @property
    def plain(self) -> GBCM:
        """A model of numbers, fitted once."""
        if self._plain is None:
            self._plain = self.fit()
        return self._plain


def ingested(trial: Trial, **options) -> None:
    model, more = trial.fit(), trial.data(seed=7)
    model.ingest(model.source(more), IngestOptions(**options))


def forgotten(trial: Trial) -> None:
    model = trial.fit()
    model.forget([model.ledger[0].key])


def merged(trial: Trial) -> None:
    like = Settings(like=str(trial.plain.url), partition="chunks")
    trial.plain.merge(GBCM.fit(trial.data(seed=8), like, model=trial.new_path()), trial.new_path())


def averaged(trial: Trial) -> None:
    X, *_ = rows(9)
    trial.plain.predict_average(X, (X[:, 0] > 0).astype(int))


def sampled(trial: Trial) -> None:
    sample_posterior(
        trial.data(), trial.settings(), model=trial.new_path(), samples=2, chains=1, hmc=HMC(iterations=10, burn_in=4)
    )


def of_noisy_inputs(trial: Trial) -> None:
    trial.fit(data=trial.data(X_variance=np.full((N, 2), 0.01)), noisy_inputs="clean")


CAPABILITIES: dict[str, Callable[[Trial], object]] = {
    **{f"fit: {kind}": lambda trial, kind=kind: trial.fit(kind) for kind in TARGETS},
    "`--partition spatial`": lambda trial: trial.fit(partition="spatial"),
    "`--passes auto` (counts)": lambda trial: trial.fit("counts", passes="auto"),
    "`--linearise running` (counts)": lambda trial: trial.fit("counts", linearise="running"),
    "`--approximation ep` (two classes)": lambda trial: trial.fit("two classes", approximation="ep"),
    "`--noise varying`": lambda trial: trial.fit(noise="varying"),
    "`--likelihood student_t`": lambda trial: trial.fit(likelihood="student_t"),
    "`--kernel matern32`": lambda trial: trial.fit(kernel="matern32"),
    "`--mean linear`": lambda trial: trial.fit(mean="linear"),
    "`--noisy-inputs clean`": of_noisy_inputs,
    "`--target-variance`": lambda trial: trial.fit(data=trial.data(target_variance=np.full(N, 0.01))),
    "weights of rows": lambda trial: trial.fit(data=trial.data(weight=np.full(N, 0.5))),
    "`--precision mixed`": lambda trial: trial.fit(precision="mixed"),
    "`--grow`": lambda trial: trial.fit(grow=True),
    "`--hyperparameters hmc`": sampled,
    "`ingest`": ingested,
    "`ingest --half-life`": lambda trial: ingested(trial, half_life=50.0),
    "`ingest --update kalman`": lambda trial: ingested(trial, update="kalman"),
    "`forget`": forgotten,
    "`merge`": merged,
    "`refit`": lambda trial: trial.fit().refit(RefitOptions(effort="quick")),
    "`predict --above`": lambda trial: trial.plain.predict(rows(9)[0], above=[0.5]),
    "`predict --terms`": lambda trial: trial.plain.predict(rows(9)[0], terms=True),
    "`predict --over` (averages)": averaged,
    "joint samples": lambda trial: trial.plain.sample(rows(9)[0][:9], size=3),
    "`X_variance` of new rows": lambda trial: trial.plain.predict(rows(9)[0], X_variance=np.full((N, 2), 0.01)),
    "`score --blocks`": lambda trial: trial.plain.cross_validate(trial.data(), folds=3),
    "ONNX": lambda trial: trial.plain.to_onnx(trial.new_path().with_suffix(".onnx")),
}
"""what is tried, by name; an error of the package is a refusal, any other a failure"""


MISSING = "a package that it needs is not installed"


def outcome(trial: Trial, what: str) -> str:
    """ "yes", `MISSING`, or what the error says, without paths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            CAPABILITIES[what](trial)
        except MissingExtra:
            return MISSING
        except BcmdistError as error:
            return plain(str(error), trial)
    return "yes"


def plain(text: str, trial: Trial) -> str:
    """An error without the paths of its model and data, the name of its expert and the value that was given."""
    text = re.sub(rf"(?:file://)?{re.escape(str(trial.folder))}/[\w.]+", "MODEL", text).removeprefix("MODEL: ")
    text = re.sub(rf"\b(?:the expert )?{trial.expert}\b", "this expert", text) if trial.expert != "bcm" else text
    return re.sub(r", got [^;,:]+(?=;)", "", text)


def outcomes(expert: str) -> dict[str, str]:
    """What an expert answers to each capability."""
    with tempfile.TemporaryDirectory() as folder, on_command_line():
        trial = Trial(expert, Path(folder))
        return {what: outcome(trial, what) for what in CAPABILITIES}


BEGIN = """# What works with which expert

Each cell is tried by a test on small tables. "yes": it works. A number: it is refused before anything is written, by
the sentence of that number below, which names the way.

"""


def page(found: dict[str, dict[str, str]]) -> str:
    """The page, from outcomes by expert and capability."""
    texts = [each[what] for what in CAPABILITIES for each in found.values()]
    sentences = list(dict.fromkeys(text for text in texts if text != "yes"))
    cells = {"yes": "yes"} | {text: str(number) for number, text in enumerate(sentences, 1)}
    lines = [f"| | {' | '.join(f'`{expert}`' for expert in found)} |", f"|---|{'---|' * len(found)}"]
    lines += [f"| {what} | {' | '.join(cells[each[what]] for each in found.values())} |" for what in CAPABILITIES]
    notes = [_wrapped(f"{number}. {text}") for number, text in enumerate(sentences, 1)]
    return BEGIN + "\n".join(lines) + "\n\n" + "\n".join(notes) + "\n"


def _wrapped(text):
    return textwrap.fill(text, WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experts", nargs="*")
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    text = page({expert: outcomes(expert) for expert in options.experts or EXPERTS})
    if options.write and MISSING not in text:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
