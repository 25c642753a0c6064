"""The command line `bcmdist`: demo, import, fit, predict, score, info, ingest, forget, merge, prune, doctor.

Every command takes `--json` (one object on stdout; progress and logs go to stderr). Exit codes:
0 done, 1 refused or failed, 2 usage, 141 nobody reads the output. Heavy packages are imported by the commands that use
them.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from dataclasses import asdict

import click

from bcmdist import __version__
from bcmdist.app import failures
from bcmdist.app.cli import jobs
from bcmdist.app.cli.options import (
    FAMILIES,
    Command,
    Task,
    json_option,
    method_option,
    parse_query,
    parse_set,
    read_config,
    runtime_options,
)
from bcmdist.app.cli.output import note_warning, one_line, report
from bcmdist.errors import BcmdistError, BcmdistWarning, InvalidOption
from bcmdist.runtime.signals import heeded, interruptible, noting
from bcmdist.storage.urls import without_users

TRACEBACK_VARIABLE = "BCMDIST_TRACEBACK"


class _Commands(click.Group):
    """Prints errors as one line, or as JSON, and sets the exit code."""

    command_class = Command

    def invoke(self, ctx):
        warnings.showwarning = _show_warning
        try:
            # A shell in the background may want SIGINT ignored.
            with interruptible(signal.SIGTERM, *heeded(signal.SIGINT)):
                return super().invoke(ctx)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "bcmdist"
            _fail("UsageError", f"{error.format_message()} (see `{where} --help`)", 2)
        except BcmdistError as error:
            _fail(type(error).__name__, str(error), 1)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and failures.nobody_reads():
                sys.exit(failures.BROKEN_PIPE)
            _fail(*failures.described(error), 1)
        except (KeyboardInterrupt, click.Abort):
            _fail("Interrupted", "expected to finish, got an interrupt; run the same command again", 1)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if isinstance(error, click.ClickException):
                raise
            if os.environ.get(TRACEBACK_VARIABLE):
                traceback.print_exc()
            hint = f"not foreseen; set {TRACEBACK_VARIABLE}=1 to see where it comes from"
            _fail(type(error).__name__, f"{error} ({hint})", 1)


def _fail(name, message, code):
    message = without_users(message)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": name, "message": message}))
    click.echo(f"bcmdist: {name}: {_line(message)}", err=True)
    sys.exit(code)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, BcmdistWarning):
        note_warning(_line(message))


def _line(message):
    return one_line(" ".join(str(message).split()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli():
    """Gaussian processes for data that do not fit one machine: a Bayesian committee on Dask."""


@cli.command()
@click.option("--rows", type=int, default=60_000, show_default=True, help="Training rows.")
@click.option("--sigma", type=float, default=0.0, show_default=True, help="Noise on the map before its sign.")
@click.option("--out", metavar="DIR", help="New directory for data, model and pictures [default: bcmdist-demo].")
@click.option("--seed", type=int, help="Seed of centres and rows [default: one of balanced classes].")
@runtime_options
@json_option
def demo(rows, sigma, out, seed, make_runtime, as_json):
    """Run the main job on generated data: a Zarr store, a Dask cluster, a committee.

    Example: bcmdist demo --rows 20000 --sigma 0.5 --out demo
    """
    started = time.perf_counter()
    from bcmdist.app import demo as demos  # quick start
    from bcmdist.app import pictures
    from bcmdist.errors import MissingExtra

    sizes = demos.DemoSizes(rows)
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
    return report(figures, as_json, shown)


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
@click.option("--no-target", is_flag=True, help="Rows to predict for: the column of the targets is not needed.")
@click.option("--weight", metavar="NAME", help="Column: how many rows each row counts for.")
@click.option("--exposure", metavar="NAME", help="Column: time or area in which the events of a row were counted.")
@click.option("--event", metavar="NAME", help="Column: 1 where a lifetime ended, 0 where it was censored.")
@click.option("--trials", metavar="NAME", help="Column: trials of which the target counts the successes.")
@click.option("--id", "id_", metavar="NAME", help="Column that names the rows, kept to the predictions.")
@click.option("--drop", metavar="NAME", multiple=True, help="Column to leave out; may be repeated.")
@json_option
def import_(file, data, y, rows_per_chunk, part, holdout, seed, mask, mask_row, no_target, id_, drop, as_json, **roles):
    """Write FILE (.npz, .npy, .csv, .parquet) as the Zarr data set DATA.

    Of a table, every column without a role is an input, and must hold numbers. Text targets are labels of classes.

    Example: bcmdist import measurements.csv train.zarr --y yield --holdout 0.1 --part train
    """
    from bcmdist.data.tables.importing import Roles, Split, import_file  # quick start

    split = Split(part, holdout, seed, mask, mask_row)
    companions = {role: name for role, name in roles.items() if name is not None}
    named = Roles(y, not no_target, companions, id_, drop)
    return report(import_file(file, data, roles=named, split=split, rows_per_chunk=rows_per_chunk), as_json)


@cli.command(epilog=FAMILIES)
@click.argument("data")
@click.option("--model", required=True, metavar="DIR", help="Model directory, new or of the same unfinished fit.")
@click.option(
    "--config",
    metavar="FILE.toml",
    callback=read_config,
    is_eager=True,
    expose_value=False,
    help="Options by name; the command line wins.",
)
@click.option(
    "--task",
    type=Task(),
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
    metavar="Q|auto",
    callback=parse_query,
    help="Query points Q [default: 500; spatial, many rows of few inputs: 1000]; auto: about two for each degree of "
    "freedom, as far as memory allows.",
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
    help="1: the committee as published; auto: until it stops moving [default: 1, or auto where rows are stored in the "
    "order of their targets].",
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
    callback=parse_set,
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
@runtime_options
@json_option
def fit(data, model, given, prepare_only, hyperparameters, samples, chains, make_runtime, as_json, **options):
    """Fit a committee to the Zarr data set DATA.

    Example: bcmdist fit train.zarr --model model --task regression --query 1000
    """
    start = time.perf_counter()
    from bcmdist.api.gbcm import GBCM  # quick start
    from bcmdist.data.dataset import open_data
    from bcmdist.learning.settings import Settings

    settings = Settings(set=given, **options)
    work = GBCM.prepare if prepare_only else GBCM.fit
    if hyperparameters == "hmc":
        work = _sampling(prepare_only, samples=samples, chains=chains)
    open_data(data, x=settings.x, y=settings.y)  # refused before a cluster starts
    with make_runtime() as runtime:
        info = work(data, settings, model=model, runtime=runtime).info()
    info["seconds"] = time.perf_counter() - start
    return report(info, as_json)


def _sampling(prepare_only, **how):
    from bcmdist.api.sampling import sample_posterior  # quick start

    if prepare_only:
        raise InvalidOption("--prepare-only: expected hyper-parameters by evidence, got hmc; leave out one of them")
    return functools.partial(sample_posterior, **how)


def _load(model):
    """What MODEL holds: a committee, or a mixture of them."""
    from bcmdist.api.mixture import Mixture, is_mixture  # quick start

    return Mixture.load(model) if is_mixture(model) else _held(model)


def _held(model, commit=None):
    """A committee that is kept from pruning until the command ends."""
    from bcmdist.api.gbcm import GBCM  # quick start

    return click.get_current_context().with_resource(GBCM.held(model, commit=commit))


def _refuse_mixture(model, what):
    from bcmdist.api.mixture import is_mixture  # quick start

    if is_mixture(model):
        raise InvalidOption(
            f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones, which stays as it "
            "is; name one of its members/, or fit another --model to the data that you want it to hold"
        )


@cli.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--out", required=True, metavar="PRED.zarr", help="New Zarr group for the predictions, or a .csv or .parquet file."
)
@method_option
@click.option("--x", "x", help="Name of the input array [default: as in training].")
@click.option("--exposure", metavar="NAME", help="Of a file: column with the exposure of the counts to predict.")
@click.option("--trials", metavar="NAME", help="Of a file: column with the trials of the successes to predict.")
@click.option("--id", "id_", metavar="NAME", help="Of a file: column that names the rows.")
@runtime_options
@json_option
def predict(model, data, out, method, x, id_, make_runtime, as_json, **roles):
    """Predict at the rows of DATA with MODEL: a Zarr data set, or a file as `import` reads it.

    Columns are found by their names in training. Rows keep their numbers, names and coordinates.

    Example: bcmdist predict model new.csv --out predictions.csv
    """
    start = time.perf_counter()
    from bcmdist.api.files import is_file, predicted  # quick start
    from bcmdist.api.mixture import Mixture
    from bcmdist.data.dataset import open_data
    from bcmdist.data.writing import refuse_existing

    gbcm = _load(model)
    method = gbcm.chosen_method(method)
    member = (gbcm.members[0] if isinstance(gbcm, Mixture) else gbcm).model
    roles = {role: name for role, name in roles.items() if name is not None}
    refuse_existing(out)
    if is_file(data):
        if x is not None:
            raise InvalidOption(f"{data}: expected a data set with --x, got a file; leave it out")
        x = "X"  # where it is imported
    with predicted(member, data, out, x=x, roles=roles, id=id_) as (rows_of, place, unused):
        open_data(rows_of, x=x or member.x_name, y=None, schema=member.schema)
        with make_runtime() as runtime:
            rows = gbcm.predict_zarr(rows_of, place, x=x, method=method, runtime=runtime)
    figures = {"rows": rows, "seconds": time.perf_counter() - start, "out": out, "method": method, "unused": unused}
    return report(figures, as_json)


@cli.command()
@click.argument("model")
@click.argument("data")
@method_option
@click.option("--x", "x", help="Name of the input array [default: as in training].")
@click.option("--y", "y", help="Name of the target array [default: as in training].")
@click.option("--picture", metavar="FILE.png", help="Draw how far the stated probabilities can be trusted.")
@runtime_options
@json_option
def score(model, data, method, x, y, picture, make_runtime, as_json):
    """Score the predictions of MODEL against the targets of DATA, in original units.

    Example: bcmdist score model test.zarr
    """
    from bcmdist.app import pictures  # quick start

    gbcm = _load(model)
    method = gbcm.chosen_method(method)
    if picture:
        pictures.check(picture)
    with make_runtime() as runtime:
        scores = gbcm.scores(data, x=x, y=y, method=method, runtime=runtime)
    figures = {"rows": int(scores.totals["rows"]), "method": method, **scores.summary()}
    if picture:
        pictures.score_picture(picture, scores)
        figures["picture"] = picture
    return report(figures, as_json)


@cli.command()
@click.argument("model")
@click.option("--at", "commit", type=int, metavar="N", help="As of commit N [default: the newest].")
@click.option("--history", is_flag=True, help="List its commits.")
@click.option("--ledger", is_flag=True, help="List the partitions it has heard.")
@click.option("--p-eff-data", is_flag=True, help="Read the data again for their own effective degrees of freedom.")
@click.option("--calibration", is_flag=True, help="Compute how often intervals hold f, with some of the rows.")
@click.option("--picture", metavar="FILE.png", help="Draw how well partitions were predicted before they were heard.")
@json_option
def info(model, commit, history, ledger, p_eff_data, calibration, picture, as_json):
    """Tell what MODEL is and what it has heard.

    Example: bcmdist info model --json
    """
    from bcmdist.app import pictures  # quick start
    from bcmdist.prediction.arrivals import drift  # quick start

    if commit is not None or history or ledger or p_eff_data or calibration or picture:
        _refuse_mixture(model, "look into")
    if picture:
        pictures.check(picture)
    gbcm = _load(model) if commit is None else _held(model, commit)
    figures = gbcm.info()
    if p_eff_data:
        figures["p_eff_data"] = gbcm.effective_parameters()["data"]
    if calibration:
        figures["calibration"] = gbcm.calibration()
    if history:
        figures["history"] = gbcm.store.history()
    if ledger:
        counts = gbcm.weights
        figures["ledger"] = [{"key": e.key, "rows": e.rows, "weight": counts[e.key]} for e in gbcm.ledger]
    if picture:
        table = drift.arrivals(gbcm.ledger)
        if not len(table):
            raise InvalidOption(
                f"{model}: expected partitions that were ingested, it has heard none; leave out --picture"
            )
        pictures.drift_picture(picture, table)
        figures["picture"] = picture
    return report(figures, as_json)


@cli.command()
@click.argument("model")
@click.argument("source")
@click.option("--watch", is_flag=True, help="Wait for more rows, until Ctrl-C; take complete ones only.")
@click.option("--max-partitions", type=int, metavar="N", help="Stop after N new partitions.")
@click.option("--commit-every", type=int, metavar="N", help="New partitions per commit [default: some seconds' worth].")
@click.option("--half-life", type=float, metavar="ROWS", help="Rows of the source after which a row counts half.")
@click.option("--window", type=int, metavar="ROWS", help="Newest rows of the source that count at all.")
@click.option("--keep", type=int, metavar="N", help="Commits to keep; older ones are pruned [default: 20].")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Partitions or data sets that fail: report and fail in the end, or go on without and say so in the model.",
)
@click.option(
    "--same-rows",
    type=click.Choice(["warn", "refuse", "allow"]),
    help="Partitions whose rows were heard under another name (a copy, a link) would count twice [default: warn].",
)
@click.option(
    "--take-over",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Of a stream: take entries that another process has left unacknowledged for so long [default: 30].",
)
@runtime_options
@json_option
def ingest(model, source, watch, make_runtime, as_json, on_error, take_over, **wishes):
    """Let MODEL hear the rows of SOURCE, once each; partitions it knows are left out.

    SOURCE is a Zarr data set, a directory of them, or redis://HOST:PORT/STREAM; the arrays are named as in training.

    Example: bcmdist ingest model new.zarr
    """
    start = time.perf_counter()
    from bcmdist.committee.ingest.options import IngestOptions  # quick start

    _refuse_mixture(model, "ingest into")
    wishes = {name: value for name, value in wishes.items() if value is not None}
    before = _held(model)
    told: list[int] = []
    wanted = IngestOptions(watch=watch, skip=on_error == "skip", stop=lambda: bool(told), **wishes)
    options = {} if take_over is None else {"idle_seconds": take_over}
    with contextlib.closing(before.source(source, watch=watch, **options)) as opened:
        opened.lag(None)  # is it there?
        with make_runtime() as runtime, noting(told) if watch else contextlib.nullcontext():
            after, tally = before.ingest(opened, wanted, runtime=runtime)
    seconds = time.perf_counter() - start
    figures = {
        **asdict(tally),
        "stopped": bool(told),
        "seconds": seconds,
        "rows_per_second": tally.rows / seconds,
        "commit": after.commit,
        "drift": after.info()["drift"],
    }
    return report(figures, as_json)


@cli.command()
@click.argument("model")
@click.argument("keys", nargs=-1, required=True)
@runtime_options
@json_option
def forget(model, keys, make_runtime, as_json):
    """Withdraw from MODEL what the partitions KEYS have said; `info --ledger` lists them.

    Example: bcmdist forget model '/data/train.zarr/X[0:1000]'
    """
    start = time.perf_counter()

    _refuse_mixture(model, "forget")
    with make_runtime() as runtime:
        after = _held(model).forget(keys, runtime=runtime)
    figures = {"forgotten": len(set(keys)), "rows": after.committee.total.rows, "partitions": len(after.ledger)}
    error = after.facts.get("withdrawn_error")
    if error is not None:
        figures["error_before_last_pass"] = error
    return report(figures | {"seconds": time.perf_counter() - start, "commit": after.commit}, as_json)


@cli.command()
@click.argument("model_a")
@click.argument("model_b")
@click.option("--model", required=True, metavar="DIR", help="New model directory.")
@json_option
def merge(model_a, model_b, model, as_json):
    """Join two committees of one prepared model that have heard different data.

    Example: bcmdist merge north south --model both
    """

    for one in (model_a, model_b):
        _refuse_mixture(one, "merge")
    return report(_held(model_a).merge(_held(model_b), model).info(), as_json)


@cli.command()
@click.argument("model")
@click.option("--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Newest commits that stay.")
@json_option
def prune(model, keep, as_json):
    """Remove old commits of MODEL, and what only they need; commits that a job or a prediction holds stay.

    Example: bcmdist prune model --keep 10
    """
    from bcmdist.storage.commits import open_store  # quick start

    _refuse_mixture(model, "prune")
    return report(open_store(model).prune(keep), as_json)


@cli.command()
@json_option
def doctor(as_json):
    """Check that this machine can do the work.

    Example: bcmdist doctor
    """
    from bcmdist.app.doctor import examine  # quick start

    findings = examine()
    failed = [f["check"] for f in findings if not f["ok"]]
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": findings}))
    else:
        for f in findings:
            click.echo(f"{'ok  ' if f['ok'] else 'FAIL'}  {f['check']:16}  {f['found']}")
    if failed:
        sys.exit(1)


jobs.add_to(cli)
