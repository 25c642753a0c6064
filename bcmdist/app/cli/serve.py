"""The commands `serve`, `tokens` and `certs`: the HTTP service, its access tokens, and TLS certificates."""

import contextlib
import signal

import click

from bcmdist.app.certificates import AUTHORITY_DAYS, LOOPBACK, make_certificates
from bcmdist.app.cli.jobs import jobs_option
from bcmdist.app.cli.options import NO_TLS, Command, NumberWithin, WholeWithin, chosen_tls, json_option, security_shown
from bcmdist.app.cli.output import report
from bcmdist.errors import MissingExtra
from bcmdist.runtime.portion import Portion


@click.command(cls=Command)
@click.argument("folder", metavar="DIR")
@click.option("--node", default="node", show_default=True, help="Name of the files: NODE.pem and NODE.key.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=LOOPBACK,
    show_default=True,
    metavar="NAME",
    help="Host name or address under which clients connect to the node.",
)
@click.option(
    "--days", type=click.IntRange(1, AUTHORITY_DAYS), default=365, show_default=True, help="Days until it expires."
)
@json_option
def certs(folder, node, hosts, days, as_json) -> dict:
    """Create a certificate and key for a node of a TLS cluster, and the CA in DIR that signs it.

    Again with another --node, the CA in DIR vouches for that one too. Nothing is overwritten. Keep ca.key where no
    cluster runs; each machine needs ca.pem and its own two files. `--tls-ca`, `--tls-cert` and `--tls-key` name these
    to bcmdist, `--tls-ca-file`, `--tls-cert` and `--tls-key` to `dask scheduler` and `dask worker`.

    Example: bcmdist certs certs --node worker1 --host worker1 --host 10.0.0.2
    """
    return report(make_certificates(folder, node=node, hosts=hosts, days=days), as_json)


SCOPES = ("read", "ingest", "admin")


@click.command(cls=Command)
@click.argument("folder", metavar="MODELS_DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port to listen on; 0: any free one."
)
@click.option(
    "--token-file", metavar="FILE", help="Tokens of `bcmdist tokens add`; without it every client may do everything."
)
@click.option("--tls-cert", metavar="FILE.pem", help="Certificate chain.")
@click.option("--tls-key", metavar="FILE.pem", help="Key of the certificate.")
@click.option("--allowed-host", "allowed", multiple=True, metavar="NAME", help="Additional host name of this service.")
@click.option("--max-body", "body_bytes", type=WholeWithin(1, 2**40), default=2**24, show_default=True, metavar="BYTES")
@click.option(
    "--max-rows",
    "rows",
    type=WholeWithin(1, 10**9),
    default=100_000,
    show_default=True,
    help="Largest number of rows per request; a row with uncertain inputs counts as 256.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that accept connections at the port; SIGHUP replaces them one by one.",
)
@click.option(
    "--max-seconds",
    "answer_seconds",
    type=NumberWithin(0, 86_400, above=True),
    default=60.0,
    show_default=True,
    help="Seconds until a request must be answered.",
)
@click.option(
    "--max-body-seconds",
    "body_seconds",
    type=NumberWithin(0, 86_400, above=True),
    default=20.0,
    show_default=True,
    help="Seconds until a request must have been received.",
)
@click.option(
    "--max-rate",
    "per_second",
    type=NumberWithin(0, 1e6, above=True),
    default=200.0,
    show_default=True,
    help="Requests per second of each client.",
)
@click.option(
    "--max-waiting",
    "waiting_rows",
    type=WholeWithin(1, 10**12),
    default=10**6,
    show_default=True,
    help="Largest number of rows waiting to be committed.",
)
@click.option(
    "--rows",
    "rows_folder",
    metavar="DIR",
    help="Directory, or prefix of an object store, for the rows of requests [default: MODELS_DIR/.rows].",
)
@click.option(
    "--keep-rows",
    type=WholeWithin(1, 36_500),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Days to keep rows that were not committed or were forgotten; others are kept.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Dask cluster that runs jobs.")
@click.option("--share", type=float, metavar="F", help="Largest share of its worker threads per job [default: all].")
@click.option(
    "--tls-ca", metavar="FILE.pem", help="CA of a scheduler at tls://HOST:PORT, which gets the same certificate."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log on stderr: lines of text, or a JSON object per request and event.",
)
@click.option("--data", metavar="DIR", help="Directory of data sets and outputs that jobs may use.")
@jobs_option
def serve(
    folder,
    body_bytes,
    rows,
    answer_seconds,
    body_seconds,
    per_second,
    waiting_rows,
    rows_folder,
    keep_rows,
    scheduler,
    share,
    tls_ca,
    log_format,
    workers,
    data,
    directory,
    **where,
) -> None:
    """Serve the models of a directory over HTTP: predictions, and exactly-once ingestion.

    Listens on this machine only, unless there are tokens and TLS. SIGTERM ends it, when all requests are answered.
    Rows of requests are kept, a file each, while the ledger of their model names them: forgetting, reweighting and
    further passes read them again. Remove them only if that is not wanted; predictions do not need them.
    MODELS_DIR may be on an object store (s3://, gs:// or az://). Several services, also on several hosts, may serve one
    MODELS_DIR: they share the rows of requests and their keys; with --workers, also the rates of clients and metrics. A
    scheduler that asks for another certificate than those who ask us is shown the one of Dask's configuration. /docs
    describes what can be asked.

    Example: bcmdist serve models --port 8080 --token-file tokens.json
    """
    click.get_current_context().with_resource(_ignoring_renewals(workers))
    try:
        from bcmdist.app.service.limits import Limits  # optional
        from bcmdist.app.service.server import Listening
        from bcmdist.app.service.server import serve as run
        from bcmdist.runtime.dask.security import security_for
    except ImportError as error:
        raise MissingExtra(
            f"serve: expected the package {error.name}, it is not installed; `pip install 'bcmdist[serve]'`"
        ) from error
    limits = Limits(body_bytes, rows, body_seconds, answer_seconds, per_second, waiting_rows=waiting_rows)
    listening = Listening(**where)
    tls = chosen_tls(scheduler, tls_ca, where["tls_cert"], where["tls_key"]) if tls_ca else NO_TLS
    security = security_shown(tls)
    if scheduler:
        security_for(scheduler, security)
    work = {"jobs": directory, "data": data, "scheduler": scheduler, "security": security, "portion": Portion(share)}
    run(
        folder, listening, limits, log_format=log_format, workers=workers, rows=rows_folder, keep_rows=keep_rows, **work
    )


@contextlib.contextmanager
def _ignoring_renewals(workers):
    """Context in which SIGHUP, which asks to replace the workers, is ignored until there are some."""
    if workers == 1 or not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@click.group()
def tokens() -> None:
    """Create, list and remove tokens of `bcmdist serve`; the file stores only their hashes.

    Example: bcmdist tokens add tokens.json NAME --scope read --scope ingest --days 90
    """


@tokens.command("add", cls=Command)
@click.argument("file")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help="Permission of the token."
)
@click.option("--days", type=NumberWithin(0, 36_500), help="Until it expires [default: never].")
@json_option
def add(file, name, scopes, days, as_json) -> dict:
    """Create a token, which is shown only once.

    Example: bcmdist tokens add tokens.json NAME --scope read
    """
    from bcmdist.app.service.tokens import add_token  # quick start

    return report({"name": name, "token": add_token(file, name, scopes, days=days)}, as_json)


@tokens.command("list", cls=Command)
@click.argument("file")
@json_option
def list_(file, as_json) -> dict:
    """List tokens by name.

    Example: bcmdist tokens list tokens.json
    """
    from bcmdist.app.service.tokens import read_tokens  # quick start

    listed = {one.name: {"scopes": list(one.scopes), "expires": one.expires} for one in read_tokens(file)}
    return report({"tokens": listed}, as_json)


@tokens.command("remove", cls=Command)
@click.argument("file")
@click.argument("name")
@json_option
def remove(file, name, as_json) -> dict:
    """Revoke a token, effective also in a running service.

    Example: bcmdist tokens remove tokens.json NAME
    """
    from bcmdist.app.service.tokens import remove_token  # quick start

    remove_token(file, name)
    return report({"removed": name}, as_json)
