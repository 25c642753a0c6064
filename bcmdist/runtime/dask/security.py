"""TLS certificates for connections to a cluster, and the reasons why a handshake with a scheduler fails.

Both sides present a certificate, and each accepts only certificates signed by its own CA. Dask does not compare host
names: every holder of a certificate of the CA can act as scheduler, worker or client, and can run code.
"""

import os
import socket
import ssl

import distributed
from distributed.comm import parse_address, parse_host_port

from bcmdist.errors import CertificateRefused, InvalidOption

ENCRYPTED, PLAIN = ("tls", "wss"), "tcp"
VARIABLE = "DASK_DISTRIBUTED__COMM__TLS__"
PROBE_SECONDS = 2.0  # timeout of the handshake probe; for a busy scheduler, Dask's own connection waits longer
HOW = (
    "give --tls-ca, --tls-cert and --tls-key (of `bcmdist certs`), in Python a distributed.Security, or set "
    f"{VARIABLE}CA_FILE, {VARIABLE}CLIENT__CERT and {VARIABLE}CLIENT__KEY"
)


def security_of(ca: str, cert: str, key: str) -> distributed.Security:
    """Make a `distributed.Security` of three PEM files: CA, certificate and key.

    The files are read here, so that errors in them are reported before any connection is made.

    Raises
    ------
    InvalidOption
        A file cannot be read, or has the wrong content.
    """
    for name, path in {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}.items():
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise InvalidOption(
                f"{name}: expected a file of PEM that can be read, got {path}; give one of `bcmdist certs`"
            )
    security = distributed.Security(
        require_encryption=True,
        tls_ca_file=os.path.abspath(ca),
        tls_client_cert=os.path.abspath(cert),
        tls_client_key=os.path.abspath(key),
    )
    _context(security)
    return security


def security_for(address: str, security: distributed.Security | None) -> distributed.Security:
    """Return the security for connecting to an address: the given one, or else the one of Dask's configuration.

    Raises
    ------
    InvalidOption
        Certificates for an unencrypted address, or none for an encrypted one.
    """
    security = security or distributed.Security()
    if not _is_encrypted(address):
        if security.require_encryption:
            raise InvalidOption(
                f"scheduler: expected tls://HOST:PORT where there are certificates or encryption is required, got "
                f"{address}; write tls://, or leave out the certificates"
            )
        return security
    shown = security.get_tls_config_for_role("client")
    if not (shown["ca_file"] and shown["cert"]):
        raise InvalidOption(f"scheduler: expected certificates for {address}, got none; {HOW}")
    _context(security)
    return security


def _is_encrypted(address):
    return parse_address(address)[0] in ENCRYPTED


def _context(security):
    """SSL context of the client's side; raises `InvalidOption` if the files are not valid certificates and keys."""
    try:
        return security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidOption(
            f"certificates: expected PEM of an authority, and a certificate with its key, got {_shown(security)} "
            f"({_reason(error)}); give the three files of one node"
        ) from error


def _reason(error):
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


def _shown(security):
    return ", ".join(_file(security, name) for name in ("ca_file", "cert", "key"))


def _file(security, name):
    """Describe a file for an error: its path, "one in memory", or "none"."""
    file = security.get_tls_config_for_role("client")[name] or "none"
    return "one in memory" if "\n" in file else file


def refuse_strangers(address: str, security: distributed.Security) -> None:
    """Raise an error with the reason if the TLS handshake with a scheduler fails; do nothing if nothing listens there.

    Dask's own connections fail in many ways in this case, some only after the whole timeout.

    Raises
    ------
    CertificateRefused
    """
    if not _is_encrypted(address):
        return
    try:
        with _line(address) as line:
            because = _exchange(line, _context(security), security)
    except (OSError, ValueError):  # nothing listens there, or the address is invalid
        return
    if because:
        raise _refused(address, because)


def refuse_plain(address: str) -> None:
    """Raise an error if a scheduler that could not be reached at a plain tcp:// address speaks TLS.

    Raises
    ------
    CertificateRefused
    """
    if parse_address(address)[0] != PLAIN:
        return
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        with _line(address) as line:
            anybody.wrap_socket(line).close()
    except (OSError, ValueError):  # nothing listens there, or the address is invalid
        return
    raise _refused(address, f"it speaks TLS; write tls://, and {HOW}")


def _line(address):
    """Open a plain socket to an address."""
    return socket.create_connection(parse_host_port(parse_address(address)[1]), PROBE_SECONDS)


def _refused(address, because):
    return CertificateRefused(f"expected a Dask scheduler at {address} that trusts us and that we trust, {because}")


def _exchange(line, context, security):
    """Do the TLS handshake; return why it failed and what to do about it, or None if it succeeded."""
    try:
        with context.wrap_socket(line) as ours:
            return None if _is_answered(ours) else _not_taken(security)
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is not one that {_file(security, 'ca_file')} vouches for ({error.verify_message}); give "
            "the ca.pem that it was made with"
        )
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):  # before TLS 1.3 our certificate is refused during the handshake
            return _not_taken(security)
        return "it speaks no TLS; write tcp:// where the network is to be trusted, or start it with certificates"


def _is_answered(ours):
    """Whether a scheduler has accepted our certificate: it then sends the first bytes."""
    try:
        return bool(ours.recv(1))
    except TimeoutError:
        return True  # busy, not refused
    except OSError:
        return False


def _not_taken(security):
    return (
        f"it does not take our certificate {_file(security, 'cert')}; give one that the scheduler's ca.pem "
        "vouches for and that has not expired"
    )


def lend_certificates(dask_scheduler=None) -> None:
    """Export the scheduler's certificates to the environment, for child processes such as coordinators of jobs.

    Runs in the scheduler's process. Variables that are set already are not changed.
    """
    security = dask_scheduler.security
    lent = {
        "CA_FILE": security.tls_ca_file,
        "CLIENT__CERT": security.tls_client_cert or security.tls_scheduler_cert,
        "CLIENT__KEY": security.tls_client_key or security.tls_scheduler_key,
    }
    for name, value in lent.items():
        if value and "\n" not in value:
            os.environ.setdefault(VARIABLE + name, os.path.abspath(value))
