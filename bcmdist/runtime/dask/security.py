"""Certificates of a cluster that speaks TLS, and why a scheduler and we do not trust each other.

Both sides show a certificate, and each takes only those of its own authority. Dask compares no names: whoever holds a
certificate of the authority may be scheduler, worker or client, and may run code.
"""

import os
import socket
import ssl

import distributed
from distributed.comm import parse_address, parse_host_port

from bcmdist.errors import CertificateRefused, InvalidOption

ENCRYPTED, PLAIN = ("tls", "wss"), "tcp"
VARIABLE = "DASK_DISTRIBUTED__COMM__TLS__"
PROBE_SECONDS = 2.0  # that a scheduler may take to refuse us; one that is busy is asked by Dask, which waits longer
HOW = (
    "give --tls-ca, --tls-cert and --tls-key (of `bcmdist certs`), in Python a distributed.Security, or set "
    f"{VARIABLE}CA_FILE, {VARIABLE}CLIENT__CERT and {VARIABLE}CLIENT__KEY"
)


def security_of(ca: str, cert: str, key: str) -> distributed.Security:
    """What Dask is told of three files, which are read here: what is wrong with them is said before anything else.

    Raises
    ------
    InvalidOption
        A file cannot be read, or holds something else than it should.
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
    """What to connect to an address with: what was given, or what Dask's configuration says.

    Raises
    ------
    InvalidOption
        Certificates for an address that asks for none, or none for one that does.
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
    """Of the client's side; `InvalidOption` where files do not make one."""
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
    """In words: a file, but for what is kept in memory or stands in the certificate's file."""
    file = security.get_tls_config_for_role("client")[name] or "none"
    return "one in memory" if "\n" in file else file


def refuse_strangers(address: str, security: distributed.Security) -> None:
    """Say why a scheduler that speaks TLS does not trust us, or we not it; nothing where nobody is there to say it.

    Dask's own connections end in many ways then, some after all the time that a scheduler has to answer.

    Raises
    ------
    CertificateRefused
    """
    if not _is_encrypted(address):
        return
    try:
        with _line(address) as line:
            because = _exchange(line, _context(security), security)
    except (OSError, ValueError):  # nobody is there, or the address is none
        return
    if because:
        raise _refused(address, because)


def refuse_plain(address: str) -> None:
    """Say that a scheduler that could not be reached by a plain address speaks TLS, where it does.

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
    except (OSError, ValueError):  # nobody is there, or the address is none
        return
    raise _refused(address, f"it speaks TLS; write tls://, and {HOW}")


def _line(address):
    """A connection that nothing has been said on yet."""
    return socket.create_connection(parse_host_port(parse_address(address)[1]), PROBE_SECONDS)


def _refused(address, because):
    return CertificateRefused(f"expected a Dask scheduler at {address} that trusts us and that we trust, {because}")


def _exchange(line, context, security):
    """In words what showing each other certificates ends with, and what to do; None where it ends well."""
    try:
        with context.wrap_socket(line) as ours:
            return None if _is_answered(ours) else _not_taken(security)
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is not one that {_file(security, 'ca_file')} vouches for ({error.verify_message}); give "
            "the ca.pem that it was made with"
        )
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):  # before TLS 1.3 it says so during the handshake
            return _not_taken(security)
        return "it speaks no TLS; write tcp:// where the network is to be trusted, or start it with certificates"


def _is_answered(ours):
    """Whether a scheduler says anything; it speaks first, once it has taken our certificate."""
    try:
        return bool(ours.recv(1))
    except TimeoutError:
        return True  # it is busy, which is another matter
    except OSError:
        return False


def _not_taken(security):
    return (
        f"it does not take our certificate {_file(security, 'cert')}; give one that the scheduler's ca.pem "
        "vouches for and that has not expired"
    )


def lend_certificates(dask_scheduler=None) -> None:
    """Let processes that a scheduler's process starts, coordinators of jobs, show the scheduler's certificate.

    What stands in the environment stays.
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
