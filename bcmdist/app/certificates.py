"""Create TLS certificates for Dask clusters: a private CA (certificate authority), and certificates of nodes.

The command `openssl` makes the files; most machines have it, so no dependency is needed for a task that is done once.
The holder of a node's key can run code on the cluster, and the holder of the CA's key can admit others; therefore key
files are readable by their owner only.
"""

import contextlib
import ipaddress
import os
import re
import secrets
import shutil
import ssl
import subprocess
import tempfile

from bcmdist.errors import DataExists, DataNotFound, InvalidOption, MissingExtra

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
LOOPBACK = ("localhost", "127.0.0.1")
HANDSHAKE_TURNS = 2  # turns of each side in a handshake of TLS 1.2 or 1.3
DATES = (9, 10)  # OpenSSL's error codes: certificate not yet valid, certificate expired
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
DNS_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
SETTINGS = """[req]
distinguished_name = name
prompt = no
x509_extensions = authority
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[node]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
{names}
"""


def make_certificates(folder, *, node="node", hosts=LOOPBACK, days=365) -> dict:
    """Make a node's certificate and key; make the CA's certificate and key first if there are none yet.

    Parameters
    ----------
    folder : directory for ca.pem, ca.key, and NODE.pem and NODE.key of each node; if it is created here, only its
        owner can read it
    node : name of the two files, without extension
    hosts : host names and addresses of the node, checked by HTTPS clients; Dask does not check them
    days : days until the node's certificate expires; the CA's certificate is valid for ten years

    Returns
    -------
    dict
        Paths `ca`, `certificate`, `key`; `node`, `hosts`, `days`.

    Raises
    ------
    DataExists
        The node has a certificate or a key already; nothing is written.
    DataNotFound
        Only one of the CA's certificate and key exists.
    InvalidOption, MissingExtra
    """
    _refuse_names(node, hosts)
    folder = os.path.abspath(folder)
    present = _files(folder, AUTHORITY)
    _refuse_existing(_files(folder, node))
    there = [os.path.lexists(path) for path in present]
    if any(there) != all(there):
        raise DataNotFound(
            f"{folder}: expected both ca.pem and ca.key of an authority, or none of them, got one; put the other one "
            "beside it, or name another directory"
        )
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as made:
        if not any(there):
            _authority(made)
        authority = present if any(there) else _files(made, AUTHORITY)
        _node(made, node, hosts, days, authority)
        for name in (AUTHORITY, node):
            for new, path in zip(_files(made, name), _files(folder, name), strict=True):
                if os.path.exists(new):
                    _put(new, path)
    certificate, key = _files(folder, node)
    return {"node": node, "ca": present[0], "certificate": certificate, "key": key, "hosts": list(hosts), "days": days}


def refuse_unusable(certificate, key) -> None:
    """Check a service's certificate and key before it listens.

    Raises
    ------
    InvalidOption
        A file is missing or not PEM, the two do not match, or the certificate is not valid now.
    """
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise InvalidOption(
                f"{option}: expected a file of PEM that can be read, got {path}; give one of `bcmdist certs`"
            )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidOption(
            f"--tls-cert, --tls-key: expected PEM of a certificate and of its key, without a passphrase, got "
            f"{certificate} and {key} ({getattr(error, 'reason', None) or error}); give both files of one node"
        ) from error
    if because := _outside_its_dates(server, certificate):
        raise InvalidOption(
            f"--tls-cert: expected a certificate that holds now, got {certificate}: {because}; make another one by "
            "`bcmdist certs`, and look at the clock"
        )


def _no_passphrase():
    raise ValueError("the key has a passphrase")


def _outside_its_dates(server, certificate):
    """Return OpenSSL's message if a certificate is expired or not yet valid, otherwise None.

    Found by a handshake in memory with a client that trusts this very certificate.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    try:
        for side in sides * HANDSHAKE_TURNS:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message if error.verify_code in DATES else None
    return None


def _files(folder, name):
    """Paths of the certificate and the key of a name."""
    return os.path.join(folder, f"{name}.pem"), os.path.join(folder, f"{name}.key")


def _refuse_names(node, hosts):
    if not NODE.fullmatch(node) or node == AUTHORITY:
        raise InvalidOption(
            f"--node: expected a name of letters, digits and . _ - other than ca, got {node!r}; it names the files"
        )
    if not hosts:
        raise InvalidOption("--host: expected at least one name or address of the node, got none; give one")
    for host in hosts:
        if not (_is_address(host) or DNS_NAME.fullmatch(host)):
            raise InvalidOption(
                f"--host: expected the name or address of a machine, got {host!r}; give one without port"
            )


def _is_address(host):
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refuse_existing(paths):
    for path in paths:
        if os.path.lexists(path):
            raise DataExists(f"{path}: expected to make it, it exists; give another --node, or remove it first")


def _put(new, path):
    """Move a file to a path; raise `DataExists` if the path exists."""
    try:
        os.link(new, path)
    except FileExistsError as error:
        raise DataExists(f"{path}: expected to make it, it exists; another process has made it just now") from error


def _authority(folder):
    """Make the CA's self-signed certificate and its key."""
    certificate, key = _key(folder, AUTHORITY)
    settings = _settings(folder, f"bcmdist CA {secrets.token_hex(4)}")
    _openssl("req", "-x509", "-new", "-key", key, "-config", settings, "-days", AUTHORITY_DAYS, "-out", certificate)


def _node(folder, name, hosts, days, authority):
    """Make a node's key and a certificate signed by the CA."""
    certificate, key = _key(folder, name)
    names = ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
    settings = _settings(folder, name, f"subjectAltName = {names}")
    request = os.path.join(folder, "request")
    _openssl("req", "-new", "-key", key, "-config", settings, "-out", request)
    signing = ["-CA", authority[0], "-CAkey", authority[1], "-set_serial", f"0x{secrets.token_hex(15)}"]
    extended = ["-extfile", settings, "-extensions", "node"]
    _openssl("x509", "-req", "-in", request, *signing, "-days", days, *extended, "-out", certificate)


def _key(folder, name):
    """Make a P-256 key, which every TLS implementation supports; return the paths of certificate and key."""
    certificate, key = _files(folder, name)
    curve = ["-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:named_curve"]
    _openssl("genpkey", "-algorithm", "EC", *curve, "-out", key)
    os.chmod(key, 0o600)
    return certificate, key


def _settings(folder, name, names=""):
    path = os.path.join(folder, "settings")
    with open(path, "w") as file:
        file.write(SETTINGS.format(name=name, names=names))
    return path


def _openssl(*arguments):
    program = shutil.which("openssl")
    if program is None:
        raise MissingExtra("certs: expected the command openssl, it is not on the PATH; `apt-get install openssl`")
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, umask=0o077)
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["nothing"])[0]
        raise InvalidOption(
            f"certs: expected `openssl {arguments[0]}` to succeed, got {message!r}; see that ca.pem and ca.key belong "
            "together, and that the disk has room"
        )
