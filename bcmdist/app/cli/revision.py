"""The commands that change the contents of models: `ingest`, `forget`, `merge`, `refit`, `revert`, `prune`,
and `backup`."""

import contextlib
import time
from dataclasses import replace

import click

from bcmdist.api.requests import ForgetRequest, IngestRequest, MergeRequest, RefitRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import COMMIT, SEED_TYPE, Command, WholeWithin, json_option, runtime_options
from bcmdist.app.cli.output import report
from bcmdist.errors import MissingExtra


def _skip(_, __, on_error):
    return on_error == "skip"


@click.command(cls=Command)
@options_of(IngestRequest, arguments=("model", "source"), leave_out=("skip",))
@click.option(
    "--on-error",
    "skip",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    callback=_skip,
    help="Partitions or data sets that fail: stop with an error after the others, or skip and record them.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Answer /metrics, for Prometheus, and /health at this address while rows are absorbed [HOST: 127.0.0.1].",
)
@runtime_options
@json_option
def ingest(make_runtime, as_json, metrics, **options) -> dict[str, int]:
    """Absorb the rows of SOURCE into MODEL, once each; partitions in its ledger are skipped.

    SOURCE is a Zarr data set, a directory of them, redis://HOST:PORT/STREAM, kafka://HOST:PORT/TOPIC, a branch
    icechunk:///PATH (or icechunk+s3://BUCKET/PREFIX), or a table sql+sqlite:///FILE.db?table=NAME&key=COLUMN (or of
    another database of SQLAlchemy); arrays and columns are named as in training.

    Example: bcmdist ingest model new.zarr
    """
    request = request_of(IngestRequest, options)
    observers = _spans()

    def observe(event):
        for one in observers:
            one(event)

    with contextlib.ExitStack() as stack:
        if metrics is not None:
            observers.append(stack.enter_context(_metrics(request, metrics)))
        request = replace(request, options=replace(request.options, observe=observe)) if observers else request
        return _carried_out(request, make_runtime, as_json)


def _spans():
    """The observer that makes spans of commits; none without the extra `otel`."""
    try:
        from bcmdist.app.tracing import commit_span  # optional
    except ImportError:
        return []
    return [commit_span]


@contextlib.contextmanager
def _metrics(request, place):
    """Context in which the metrics of a request to ingest can be asked for; yields their observer."""
    try:
        from bcmdist.app.ingest_metrics import IngestMetrics, answering  # optional
    except ImportError as error:
        raise MissingExtra(
            f"--metrics: expected the package {error.name}, it is not installed; `pip install 'bcmdist[serve]'`"
        ) from error
    metrics = IngestMetrics(request.model, request.source)
    with answering(place, metrics) as url:
        click.echo(f"bcmdist: metrics at {url}", err=True)
        yield metrics.observe


@click.command(cls=Command)
@options_of(ForgetRequest, arguments=("model", "keys"))
@runtime_options
@json_option
def forget(make_runtime, as_json, **options) -> dict:
    """Forget the partitions KEYS in MODEL, exactly; `info --ledger` lists them.

    Example: bcmdist forget model '/data/train.zarr/X[0:1000]'
    """
    return _carried_out(request_of(ForgetRequest, options), make_runtime, as_json)


@click.command(cls=Command)
@options_of(MergeRequest, arguments=("model_a", "model_b"), query_most={"type": WholeWithin(1, 10**6)})
@runtime_options
@json_option
def merge(make_runtime, as_json, **options) -> dict:
    """Merge two committees of one kernel, or two mixtures of the same samples, that have absorbed different data.

    They may have different query points, as of `fit --like` or after `ingest --grow`: the result has those of both.

    Class probabilities and the distribution of errors are calibrated by the rows of both, as far as these can be read.
    If a merge of two committees was killed, the same command continues it, unless one of them has a new commit.

    Example: bcmdist merge north south --model both
    """
    return _carried_out(request_of(MergeRequest, options), make_runtime, as_json)


@click.command(cls=Command)
@options_of(RefitRequest, arguments=("model",), newest={"type": WholeWithin(1, 10**15)}, seed={"type": SEED_TYPE})
@runtime_options
@json_option
def refit(make_runtime, as_json, **options) -> dict:
    """Learn hyper-parameters and query points of MODEL anew, and absorb its rows again.

    Meanwhile MODEL serves and ingests as before; the new state is one commit. Rows that cannot be read again are left
    out, with a warning; `bcmdist revert` returns to the state before.

    Example: bcmdist refit live --newest 20000
    """
    return _carried_out(request_of(RefitRequest, options), make_runtime, as_json)


def _carried_out(request, make_runtime, as_json):
    """Carry out a request, and report its figures."""
    started = time.perf_counter()
    from bcmdist.api.carry_out import carry_out  # quick start

    return report(carry_out(request, make_runtime, started=started), as_json)


@click.command(cls=Command)
@click.argument("model")
@click.option("--to", type=COMMIT, required=True, metavar="N|ALIAS", help="Earlier commit, by its number or an alias.")
@json_option
def revert(model, to, as_json) -> dict:
    """Return MODEL to the state of an earlier commit, as a new commit; `info --history` lists the commits.

    Rows that were absorbed after that commit are absorbed again when `ingest` reads their source again; stop an
    `ingest --watch` before, which would go on where it is.

    Example: bcmdist revert live --to 12
    """
    from bcmdist.api.mixture import opened  # quick start

    with opened(model) as before:
        after = before.revert(to)
    snapshot = after.predictive.snapshot
    figures = {"commit": after.commit, "rows": snapshot.committee.total.rows, "partitions": len(snapshot.ledger)}
    return report(figures, as_json)


@click.command(cls=Command)
@click.argument("model")
@click.argument("to")
@click.option("--at", "commit", type=COMMIT, metavar="N|ALIAS", help="Commit to copy [default: the newest].")
@json_option
def backup(model, to, commit, as_json) -> dict:
    """Copy a commit of MODEL to the new directory TO, while others go on; to restore, copy it back in the same way.

    The copy is the same model: `ingest` goes on from its offsets, and absorbs what was absorbed after the backup again.

    Example: bcmdist backup live backups/monday
    """
    from bcmdist.api.mixture import opened  # quick start
    from bcmdist.api.mixtures.backup import back_up_mixture
    from bcmdist.committee.backup import back_up
    from bcmdist.committee.mixture_commits import is_mixture

    (back_up_mixture if is_mixture(model) else back_up)(model, to, commit)
    with opened(to) as copy:
        rows, partitions = copy.predictive.snapshot.committee.total.rows, len(copy.ledger)
        return report({"commit": copy.commit, "rows": rows, "partitions": partitions, "model": copy.url}, as_json)


@click.command(cls=Command)
@click.argument("model")
@click.option(
    "--keep", type=click.IntRange(1, 10**8 - 1), required=True, metavar="N", help="Number of newest commits to keep."
)
@click.option(
    "--keep-ledger",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="Number of newest partitions to keep in the ledger one by one. Of older ones only the ranges of their rows "
    "stay, if they adjoin others: these rows are still recognised and counted once, but can no longer be forgotten, "
    "refitted, or checked for changes. By default all stay.",
)
@json_option
def prune(model, keep, keep_ledger, as_json) -> dict:
    """Remove old commits of MODEL and the files only they need; commits in use by a job or a prediction, and those
    that an alias names, stay.

    Example: bcmdist prune model --keep 10 --keep-ledger 100000
    """
    from bcmdist.api.mixture import Mixture, refuse_mixture  # quick start
    from bcmdist.committee.compaction import compact
    from bcmdist.committee.mixture_commits import is_mixture
    from bcmdist.committee.snapshot import Snapshot
    from bcmdist.storage.commits import open_store

    ledger = {}
    if keep_ledger is not None:
        refuse_mixture(model, "compact its ledger by --keep-ledger")
        found = compact(Snapshot.load(model), keep_ledger).ledger
        ledger = {"partitions": len(found), "rows": found.rows, "compacted_rows": found.compacted_rows}
    pruned = Mixture.load(model).prune(keep) if is_mixture(model) else open_store(model).prune(keep)
    return report(pruned | ledger, as_json)
