"""The command `certs`: create TLS certificates for a cluster."""

import click

from bcmdist.app.certificates import AUTHORITY_DAYS, LOOPBACK, make_certificates
from bcmdist.app.cli.options import Command, json_option
from bcmdist.app.cli.output import report


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
