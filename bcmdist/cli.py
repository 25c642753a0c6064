"""The command line `bcmdist`: demo, import, fit, predict, score, info, ingest, forget, merge, prune, doctor.

Every command takes `--json` (one object on stdout; progress and logs go to stderr). Exit codes:
0 done, 1 refused or failed, 2 usage. Heavy packages are imported by the commands that use them.
"""

import functools
import json
import math
import os
import sys
import time
import traceback
import warnings

import click

from bcmdist import __version__
from bcmdist.errors import BcmdistError, BcmdistWarning, InvalidOption

TRACEBACK_VARIABLE = "BCMDIST_TRACEBACK"


class _Commands(click.Group):
    """Prints errors as one line, or as JSON, and sets the exit code."""

    def invoke(self, ctx):
        warnings.showwarning = _show_warning
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "bcmdist"
            _fail("UsageError", f"{error.format_message()} (see `{where} --help`)", 2)
        except (BcmdistError, OSError) as error:
            _fail(type(error).__name__, str(error), 1)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if isinstance(error, click.ClickException | click.Abort):
                raise
            if os.environ.get(TRACEBACK_VARIABLE):
                traceback.print_exc()
            hint = f"not foreseen; set {TRACEBACK_VARIABLE}=1 to see where it comes from"
            _fail(type(error).__name__, f"{error} ({hint})", 1)


def _fail(name, message, code):
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": name, "message": message}))
    line = " ".join(message.split())
    click.echo(f"bcmdist: {name}: {line}", err=True)
    sys.exit(code)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, BcmdistWarning):
        click.echo(f"bcmdist: warning: {message}", err=True)


def _report(figures, as_json, text=None):
    """Print figures as JSON, or as a table."""
    if as_json:
        click.echo(json.dumps(_finite(figures)))
        return
    width = max(len(name) for name in figures)
    for name, value in (text or figures).items():
        click.echo(f"{name:{width}}  {_readable(value)}")


def _finite(value):
    """JSON has no nan: figures that do not exist, such as the AUC of one class, become null."""
    if isinstance(value, dict):
        return {name: _finite(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _readable(value):
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{n} {_readable(v)}" for n, v in value.items())
    if isinstance(value, list):
        return " ".join(_readable(v) for v in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def _runtime_options(command):
    """--scheduler, --workers, --serial; the command gets `make_runtime`."""

    @click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster at this address.")
    @click.option("--workers", type=int, help="Worker processes of a cluster on this machine [default: cores].")
    @click.option("--serial", is_flag=True, help="Work in this process, without a cluster.")
    @functools.wraps(command)
    def wrapped(*args, scheduler, workers, serial, **options):
        context = click.get_current_context()
        given = {"scheduler": scheduler, "workers": workers, "serial": serial or None}
        typed = {n for n in given if context.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE}
        # What the command line says wins over a configuration file.
        chosen = [n for n, v in given.items() if v is not None and (n in typed or not typed)]
        if len(chosen) > 1:
            raise click.UsageError("expected one of --scheduler, --workers and --serial, got several")
        scheduler, workers, serial = (v if n in chosen else None for n, v in given.items())
        return command(*args, make_runtime=lambda: _runtime(scheduler, workers, serial), **options)

    return wrapped


def _runtime(scheduler, workers, serial):
    from bcmdist.progress import ProgressBar

    if serial:
        from bcmdist.runtime.serial import SerialRuntime

        return SerialRuntime(progress=ProgressBar())
    from bcmdist.runtime.dask import DaskRuntime

    return DaskRuntime(scheduler, workers=workers, progress=ProgressBar())


_method_option = click.option(
    "--method",
    type=click.Choice(["committee", "local"]),
    help="From the committee alone, or with the rows around each new point [default: local where cells were fitted].",
)


def _read_config(ctx, _, path):
    """Options from a TOML file become defaults: what the command line says wins."""
    if path is None:
        return
    import tomllib

    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except ValueError as error:  # not TOML, or not even text
        raise InvalidOption(f"{path}: expected TOML, got {error}; correct the file") from error
    options = [p for p in ctx.command.params if isinstance(p, click.Option)]
    names = {name.removeprefix("--"): p for p in options for name in p.opts}
    negated = {name.removeprefix("--"): p for p in options for name in p.secondary_opts}
    unknown = sorted(set(values) - set(names) - set(negated))
    if unknown:
        raise InvalidOption(f"{path}: expected names of options, got {', '.join(unknown)}; see --help")
    for name, value in values.items():
        flag = name in negated or names[name].is_flag
        if name != "set" and not isinstance(value, bool if flag else str | int | float):
            wanted = "true or false" if flag else "a number or a text"
            raise InvalidOption(f"{path}: expected {wanted} for {name}, got {value!r}; correct the file")
    defaults = {names[n].name: v for n, v in values.items() if n in names}
    defaults |= {negated[n].name: not v for n, v in values.items() if n in negated}
    if isinstance(values.get("set"), dict):
        defaults["given"] = [f"{n}={text}" for n, text in _assignments(values["set"])]
    ctx.default_map = defaults


def _assignments(table, prefix=""):
    """Names and values of a TOML table, whose dotted keys are tables in tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _parse_set(_, __, assignments):
    """`name=1.5` or `name=1,2,3` into numbers by name."""
    given = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        try:
            values = [float(v) for v in text.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(f"expected NAME=NUMBER or NAME=NUMBER,NUMBER,..., got {assignment!r}")
        given[name.strip()] = values if len(values) > 1 else values[0]
    return given


def _parse_query(_, __, text):
    """A number, or `auto`."""
    try:
        return text if text == "auto" else int(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a whole number or auto, got {text!r}") from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli():
    """Gaussian processes for data that do not fit one machine: a Bayesian committee on Dask."""


@cli.command()
@click.option("--rows", type=int, default=60_000, show_default=True, help="Training rows.")
@click.option("--sigma", type=float, default=0.0, show_default=True, help="Noise on the map before its sign.")
@click.option("--out", metavar="DIR", help="New directory for data, model and pictures [default: bcmdist-demo].")
@click.option("--seed", type=int, help="Seed of centres and rows [default: one of balanced classes].")
@_runtime_options
@_json_option
def demo(rows, sigma, out, seed, make_runtime, as_json):
    """Run the main job on generated data: a Zarr store, a Dask cluster, a committee.

    Example: bcmdist demo --rows 20000 --sigma 0.5 --out demo
    """
    started = time.perf_counter()
    from bcmdist import demo as demos
    from bcmdist import pictures
    from bcmdist.errors import MissingExtra

    sizes = demos.Sizes(rows)
    seed = demos.DEFAULT_SEED if seed is None else seed
    directory = demos.new_directory(out)
    with make_runtime() as runtime:
        cluster_seconds = time.perf_counter() - started
        figures = demos.run(directory, runtime, sizes=sizes, sigma=sigma, seed=seed)
        figures["workers"] = runtime.threads
    figures["seconds_by_stage"] = {"cluster": cluster_seconds} | figures["seconds_by_stage"]
    try:
        figures["pictures"] = demos.draw(directory, figures)
    except MissingExtra:
        figures["pictures"] = []
        click.echo(pictures.HOW_TO_GET, err=True)
    figures["seconds"] = time.perf_counter() - started
    figures["rows_per_second"] = figures["rows"] / figures["seconds"]
    curve = figures["curve"]
    shown = {n: v for n, v in figures.items() if n != "curve"}
    shown |= {f"after {p['rows']:,} rows": f"accuracy {p['accuracy']:.4f}, log loss {p['log_loss']:.4f}" for p in curve}
    _report(figures, as_json, shown)


@cli.command("import")
@click.argument("file")
@click.argument("data")
@click.option("--y", "y", default="y", show_default=True, help="Array or column of the targets.")
@click.option("--rows-per-chunk", type=int, default=4096, show_default=True, help="Rows per Zarr chunk.")
@click.option("--part", type=click.Choice(["train", "test", "all"]), default="all", show_default=True)
@click.option("--holdout", type=float, metavar="FRACTION", help="Share of rows in the test part.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the holdout permutation.")
@click.option("--mask", metavar="NAME", help="Array that is 1 at test rows.")
@click.option("--mask-row", type=int, default=0, show_default=True, help="Row of the mask to use.")
@_json_option
def import_(file, data, y, rows_per_chunk, part, holdout, seed, mask, mask_row, as_json):
    """Write FILE (.npz, .npy, .csv, .parquet) as the Zarr data set DATA.

    Example: bcmdist import measurements.csv train.zarr --y yield --holdout 0.1 --part train
    """
    from bcmdist.importer import Split, import_file

    split = Split(part, holdout, seed, mask, mask_row)
    _report(import_file(file, data, y=y, split=split, rows_per_chunk=rows_per_chunk), as_json)


@cli.command()
@click.argument("data")
@click.option("--model", required=True, metavar="DIR", help="Model directory, new or of the same unfinished fit.")
@click.option(
    "--config",
    metavar="FILE.toml",
    callback=_read_config,
    is_eager=True,
    expose_value=False,
    help="Options by name; the command line wins.",
)
@click.option(
    "--task",
    type=click.Choice(["regression", "classification", "counts", "lifetimes", "binomial"]),
    help="[default: classification for targets 0 and 1, else regression]",
)
@click.option(
    "--likelihood",
    metavar="NAME",
    help="gaussian student_t gamma inverse_gaussian; bernoulli probit svm softmax softmax_coupled softmax_fisher "
    "onehot; negative_binomial poisson; weibull exponential; binomial [default: the first of the task's; onehot for "
    "more than two classes]",
)
@click.option(
    "--kernel",
    default="auto",
    show_default=True,
    metavar="NAME|auto",
    help="se matern12 matern32 matern52 rq linear poly2 poly3 constant; -iso for one lengthscale; + and *.",
)
@click.option("--mean", type=click.Choice(["constant", "zero", "linear"]), default="constant", show_default=True)
@click.option(
    "--query",
    default="500",
    show_default=True,
    metavar="Q|auto",
    callback=_parse_query,
    help="Query points Q; auto: about two for each degree of freedom, as far as memory allows.",
)
@click.option(
    "--query-method",
    type=click.Choice(["kmeans", "random", "pivoted", "evidence", "optimised"]),
    default="kmeans",
    show_default=True,
    help="k-means centres; or rows: random, of largest prior variance given the others, or best for the evidence; "
    "optimised, with --objective committee: k-means centres moved to raise its evidence.",
)
@click.option("--rows-per-expert", type=int, default=1000, show_default=True)
@click.option(
    "--passes",
    type=click.Choice(["1", "auto"]),
    default="1",
    show_default=True,
    help="1: the committee as published; auto: until it stops moving.",
)
@click.option(
    "--approximation",
    type=click.Choice(["laplace", "ep"]),
    default="laplace",
    show_default=True,
    help="How experts make other than Gaussian rows Gaussian: at the mode, or by expectation propagation.",
)
@click.option(
    "--linearise",
    type=click.Choice(["own", "running"]),
    default="own",
    show_default=True,
    help="First pass: each expert at its own mode, or under the belief of the moment (then order matters).",
)
@click.option(
    "--partition",
    type=click.Choice(["chunks", "spatial"]),
    default="chunks",
    show_default=True,
    help="Rows as they are stored, or cells of near rows, which are copied into their order and give local prediction.",
)
@click.option("--learn/--no-learn", default=True, show_default=True, help="Learn hyper-parameters.")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_set,
    help="With --no-learn: a hyper-parameter as `info` prints it, in units of the scaled data.",
)
@click.option(
    "--hyperparameters",
    type=click.Choice(["evidence", "hmc"]),
    default="evidence",
    show_default=True,
    help="Learned: those of the largest evidence; or samples (Hamiltonian Monte Carlo) with a committee for each.",
)
@click.option("--samples", type=int, default=50, show_default=True, help="With hmc: committees in all.")
@click.option("--chains", type=int, default=2, show_default=True, help="With hmc: chains to sample from.")
@click.option(
    "--objective",
    type=click.Choice(["local", "committee", "subset"]),
    default="local",
    show_default=True,
    help="Learn from blocks on their own; from there on from the whole committee; or from one random subset.",
)
@click.option("--effort", type=click.Choice(["quick", "normal", "thorough"]), default="normal", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--x", "x", default="X", show_default=True, help="Name of the input array.")
@click.option("--y", "y", default="y", show_default=True, help="Name of the target array.")
@click.option("--prepare-only", is_flag=True, help="Commit an empty committee and stop.")
@_runtime_options
@_json_option
def fit(data, model, given, prepare_only, hyperparameters, samples, chains, make_runtime, as_json, **options):
    """Fit a committee to the Zarr data set DATA.

    Example: bcmdist fit train.zarr --model model --task regression --query 1000
    """
    start = time.perf_counter()
    from bcmdist.bcm import GBCM
    from bcmdist.settings import Settings

    settings = Settings(set=given, **options)
    work = GBCM.prepare if prepare_only else GBCM.fit
    if hyperparameters == "hmc":
        work = _sampling(prepare_only, samples=samples, chains=chains)
    with make_runtime() as runtime:
        info = work(data, settings, model=model, runtime=runtime).info()
    info["seconds"] = time.perf_counter() - start
    _report(info, as_json)


def _sampling(prepare_only, **how):
    from bcmdist.posterior import sample_posterior

    if prepare_only:
        raise InvalidOption("--prepare-only: expected hyper-parameters by evidence, got hmc; leave out one of them")
    return functools.partial(sample_posterior, **how)


def _load(model):
    """What MODEL holds: a committee, or a mixture of them."""
    from bcmdist.bcm import GBCM
    from bcmdist.mixture import Mixture, is_mixture

    return Mixture.load(model) if is_mixture(model) else GBCM.load(model)


def _refuse_mixture(model, what):
    from bcmdist.mixture import is_mixture

    if is_mixture(model):
        raise InvalidOption(
            f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones, which stays as it "
            "is; name one of its members/, or fit another --model to the data that you want it to hold"
        )


@cli.command()
@click.argument("model")
@click.argument("data")
@click.option("--out", required=True, metavar="PRED.zarr", help="New Zarr group for the predictions.")
@_method_option
@click.option("--x", "x", help="Name of the input array [default: as in training].")
@_runtime_options
@_json_option
def predict(model, data, out, method, x, make_runtime, as_json):
    """Predict at the rows of DATA with MODEL.

    Example: bcmdist predict model new.zarr --out predictions.zarr
    """
    start = time.perf_counter()
    from bcmdist.inference import chosen_method

    gbcm = _load(model)
    method = chosen_method(gbcm.facts, method)
    with make_runtime() as runtime:
        rows = gbcm.predict_zarr(data, out, x=x, method=method, runtime=runtime)
    figures = {"rows": rows, "seconds": time.perf_counter() - start, "out": out, "method": method}
    _report(figures, as_json)


@cli.command()
@click.argument("model")
@click.argument("data")
@_method_option
@click.option("--x", "x", help="Name of the input array [default: as in training].")
@click.option("--y", "y", help="Name of the target array [default: as in training].")
@click.option("--picture", metavar="FILE.png", help="Draw how far the stated probabilities can be trusted.")
@_runtime_options
@_json_option
def score(model, data, method, x, y, picture, make_runtime, as_json):
    """Score the predictions of MODEL against the targets of DATA, in original units.

    Example: bcmdist score model test.zarr
    """
    from bcmdist import pictures
    from bcmdist.inference import chosen_method

    gbcm = _load(model)
    method = chosen_method(gbcm.facts, method)
    if picture:
        pictures.check(picture)
    with make_runtime() as runtime:
        scores = gbcm.scores(data, x=x, y=y, method=method, runtime=runtime)
    figures = {"rows": int(scores.totals["rows"]), "method": method, **scores.summary()}
    if picture:
        pictures.score_picture(picture, scores)
        figures["picture"] = picture
    _report(figures, as_json)


@cli.command()
@click.argument("model")
@click.option("--at", "commit", type=int, metavar="N", help="As of commit N [default: the newest].")
@click.option("--history", is_flag=True, help="List its commits.")
@click.option("--ledger", is_flag=True, help="List the partitions it has heard.")
@click.option("--p-eff-data", is_flag=True, help="Read the data again for their own effective degrees of freedom.")
@click.option("--calibration", is_flag=True, help="Compute how often intervals hold f, with some of the rows.")
@_json_option
def info(model, commit, history, ledger, p_eff_data, calibration, as_json):
    """Tell what MODEL is and what it has heard.

    Example: bcmdist info model --json
    """
    from bcmdist.bcm import GBCM

    if commit is not None or history or ledger or p_eff_data or calibration:
        _refuse_mixture(model, "look into")
    gbcm = _load(model) if commit is None else GBCM.load(model, commit=commit)
    figures = gbcm.info()
    if p_eff_data:
        figures["p_eff_data"] = gbcm.effective_parameters()["data"]
    if calibration:
        figures["calibration"] = gbcm.calibration()
    if history:
        figures["history"] = gbcm.store.history()
    if ledger:
        figures["ledger"] = [{"key": e.key, "rows": e.rows, "weight": e.weight} for e in gbcm.ledger]
    _report(figures, as_json)


@cli.command()
@click.argument("model")
@click.argument("source")
@_runtime_options
@_json_option
def ingest(model, source, make_runtime, as_json):
    """Let MODEL hear the rows of the Zarr data set SOURCE; partitions it knows are left out.

    The arrays are named as in training.

    Example: bcmdist ingest model new.zarr
    """
    start = time.perf_counter()
    from bcmdist.bcm import GBCM

    _refuse_mixture(model, "ingest into")
    before = GBCM.load(model)
    with make_runtime() as runtime:
        after = before.partial_fit(source, runtime=runtime)
    new = after.ledger[len(before.ledger) :]
    rows, seconds = sum(entry.rows for entry in new), time.perf_counter() - start
    figures = {"partitions": len(new), "rows": rows, "duplicates": len(before.partitions_of(source)) - len(new)}
    _report(figures | {"seconds": seconds, "rows_per_second": rows / seconds, "commit": after.commit}, as_json)


@cli.command()
@click.argument("model")
@click.argument("keys", nargs=-1, required=True)
@_runtime_options
@_json_option
def forget(model, keys, make_runtime, as_json):
    """Withdraw from MODEL what the partitions KEYS have said; `info --ledger` lists them.

    Example: bcmdist forget model '/data/train.zarr/X[0:1000]'
    """
    start = time.perf_counter()
    from bcmdist.bcm import GBCM

    _refuse_mixture(model, "forget")
    with make_runtime() as runtime:
        after = GBCM.load(model).forget(keys, runtime=runtime)
    figures = {"forgotten": len(set(keys)), "rows": after.committee.total.rows, "partitions": len(after.ledger)}
    error = after.facts.get("withdrawn_error")
    if error is not None:
        figures["error_before_last_pass"] = error
    _report(figures | {"seconds": time.perf_counter() - start, "commit": after.commit}, as_json)


@cli.command()
@click.argument("model_a")
@click.argument("model_b")
@click.option("--model", required=True, metavar="DIR", help="New model directory.")
@_json_option
def merge(model_a, model_b, model, as_json):
    """Join two committees of one prepared model that have heard different data.

    Example: bcmdist merge north south --model both
    """
    from bcmdist.bcm import GBCM

    for one in (model_a, model_b):
        _refuse_mixture(one, "merge")
    _report(GBCM.load(model_a).merge(GBCM.load(model_b), model).info(), as_json)


@cli.command()
@click.argument("model")
@click.option("--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Newest commits that stay.")
@_json_option
def prune(model, keep, as_json):
    """Remove old commits of MODEL, and what only they need; commits that a job or a prediction holds stay.

    Example: bcmdist prune model --keep 10
    """
    from bcmdist.store import open_store

    _refuse_mixture(model, "prune")
    _report(open_store(model).prune(keep), as_json)


@cli.command()
@_json_option
def doctor(as_json):
    """Check that this machine can do the work.

    Example: bcmdist doctor
    """
    from bcmdist.doctor import examine

    findings = examine()
    failed = [f["check"] for f in findings if not f["ok"]]
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": findings}))
    else:
        for f in findings:
            click.echo(f"{'ok  ' if f['ok'] else 'FAIL'}  {f['check']:16}  {f['found']}")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    cli()
