"""The command certs: an authority, nodes that it vouches for, and nothing overwritten."""

import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import threading

import pytest
from click.testing import CliRunner

from bcmdist.app import certificates
from bcmdist.app.certificates import make_certificates, refuse_unusable
from bcmdist.app.cli.main import cli
from bcmdist.errors import DataExists, DataNotFound, InvalidOption, MissingExtra

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl: not on the PATH")


def made(folder):
    """Contents of all files, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def context(purpose, files, name="node"):
    """One side's, which asks the other side for a certificate too."""
    found = ssl.create_default_context(purpose, cafile=files / "ca.pem")
    found.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    found.verify_mode = ssl.CERT_REQUIRED
    return found


def greeted(server, client, name):
    """What a client that connects to a server by name gets, both with the standard library's strict defaults."""
    ours, theirs = socket.socketpair()

    def serve():
        try:
            with server.wrap_socket(theirs, server_side=True) as line:
                line.sendall(b"hello")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as line:
            return line.recv(5)
    finally:
        ours.close()
        thread.join()


def test_an_authority_and_its_nodes(tmp_path):
    done = CliRunner().invoke(cli, ["certs", str(tmp_path / "c"), "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["hosts"], said["days"]) == (0, ["localhost", "127.0.0.1"], 365)
    first = made(tmp_path / "c")
    assert set(first) == {"ca.pem", "ca.key", "node.pem", "node.key"}
    assert {name for name in first if stat.S_IMODE(os.stat(tmp_path / "c" / name).st_mode) & 0o077} == set()
    assert stat.S_IMODE(os.stat(tmp_path / "c" / "node.key").st_mode) == 0o600
    make_certificates(tmp_path / "c", node="worker1", hosts=["worker1.lan", "10.0.0.2", "::1"])
    second = made(tmp_path / "c")
    assert set(second) - set(first) == {"worker1.pem", "worker1.key"}
    assert {name: second[name] for name in first} == first


def test_both_sides_take_nodes_of_one_authority_only(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    make_certificates(a)
    make_certificates(a, node="other", hosts=["other.lan", "10.0.0.2"])
    make_certificates(b)
    server, client = context(ssl.Purpose.CLIENT_AUTH, a, "other"), context(ssl.Purpose.SERVER_AUTH, a)
    for name in ["other.lan", "10.0.0.2"]:
        assert greeted(server, client, name) == b"hello"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        greeted(server, client, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self.signed"):
        greeted(server, context(ssl.Purpose.SERVER_AUTH, b), "other.lan")
    foreign = context(ssl.Purpose.CLIENT_AUTH, b)
    foreign.load_verify_locations(a / "ca.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        greeted(foreign, client, "localhost")


def test_nothing_is_overwritten(tmp_path):
    make_certificates(tmp_path / "c")
    before = made(tmp_path / "c")
    with pytest.raises(DataExists, match=r"node.pem: expected to make it, it exists; give another --node"):
        make_certificates(tmp_path / "c")
    (tmp_path / "c" / "half.key").write_bytes(b"mine")
    with pytest.raises(DataExists, match=r"half.key: expected to make it"):
        make_certificates(tmp_path / "c", node="half")
    assert made(tmp_path / "c") == before | {"half.key": b"mine"}


@pytest.mark.parametrize("lost", ["ca.pem", "ca.key"])
def test_half_an_authority_is_refused(tmp_path, lost):
    make_certificates(tmp_path / "c")
    (tmp_path / "c" / lost).unlink()
    before = made(tmp_path / "c")
    with pytest.raises(DataNotFound, match=r"expected both ca.pem and ca.key"):
        make_certificates(tmp_path / "c", node="other")
    assert made(tmp_path / "c") == before


def test_an_authority_of_two_halves_is_refused(tmp_path):
    make_certificates(tmp_path / "a")
    make_certificates(tmp_path / "b")
    shutil.copy(tmp_path / "b" / "ca.key", tmp_path / "a" / "ca.key")
    before = made(tmp_path / "a")
    with pytest.raises(InvalidOption, match=r"expected `openssl x509` to succeed.* belong together"):
        make_certificates(tmp_path / "a", node="other")
    assert made(tmp_path / "a") == before


@pytest.mark.parametrize(
    ("node", "hosts", "said"),
    [
        ("ca", ["localhost"], "--node: expected a name"),
        ("../node", ["localhost"], "--node: expected a name"),
        ("node", ["tls://host:8786"], "--host: expected the name or address"),
        ("node", ["a,IP:10.0.0.1"], "--host: expected the name or address"),
        ("node", ["a\n[node]"], "--host: expected the name or address"),
        ("node", [], "--host: expected at least one"),
    ],
)
def test_names_that_are_none_are_refused(tmp_path, node, hosts, said):
    with pytest.raises(InvalidOption, match=said):
        make_certificates(tmp_path / "c", node=node, hosts=hosts)
    assert not (tmp_path / "c").exists()


def test_without_openssl(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates.shutil, "which", lambda name: None)
    with pytest.raises(MissingExtra, match="expected the command openssl"):
        make_certificates(tmp_path / "c")
    assert made(tmp_path / "c") == {}


def test_how_long_they_hold(tmp_path):
    make_certificates(tmp_path / "c", days=2)

    def holds(name, days):
        command = ["openssl", "x509", "-in", tmp_path / "c" / name, "-noout", "-checkend", str(days * 86400)]
        return subprocess.run(command, capture_output=True).returncode == 0

    assert (holds("node.pem", 1), holds("node.pem", 3)) == (True, False)
    assert (holds("ca.pem", 3649), holds("ca.pem", 3651)) == (True, False)


# --- Of a service ---

AUTHORITY = """[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def make_dated(folder, name, first, last):
    """A certificate, with its key, that holds between two dates."""
    (folder / "index").touch()
    (folder / "index.attr").write_text("unique_subject = no\n")
    (folder / "settings").write_text(AUTHORITY.format(folder=folder))
    key, request, certificate = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
    shutil.copy(folder / "one.key", key)
    dates = ["-startdate", f"{first}0101000000Z", "-enddate", f"{last}0101000000Z"]
    new = ["req", "-new", "-key", key, "-subj", "/CN=node", "-out", request]
    sign = ["ca", "-batch", "-config", folder / "settings", "-selfsign", "-keyfile", key, "-in", request, *dates]
    for command in (new, [*sign, "-notext", "-out", certificate]):
        subprocess.run(["openssl", *command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Certificates of two nodes, of one that has expired and of one that does not hold yet, and files that are none."""
    folder = tmp_path_factory.mktemp("certs")
    for node in ("one", "two"):
        make_certificates(folder, node=node)
    make_dated(folder, "old", 2001, 2002)
    make_dated(folder, "early", 2090, 2091)
    (folder / "text.pem").write_text("no certificate")
    (folder / "folder.pem").mkdir()
    locked = ["-aes256", "-passout", "pass:word", "-in", folder / "one.key", "-out", folder / "locked.key"]
    subprocess.run(["openssl", "ec", *locked], check=True, capture_output=True)
    return folder


def test_a_certificate_with_its_key_is_taken(nodes):
    refuse_unusable(nodes / "one.pem", nodes / "one.key")


REFUSED = [
    ("none.pem", "one.key", "--tls-cert: expected a file of PEM that can be read"),
    ("one.pem", "none.key", "--tls-key: expected a file of PEM that can be read"),
    ("folder.pem", "one.key", "--tls-cert: expected a file of PEM that can be read"),
    ("text.pem", "one.key", "--tls-cert, --tls-key: expected PEM of a certificate and of its key"),
    ("one.key", "one.key", "--tls-cert, --tls-key: expected PEM of a certificate and of its key"),
    ("one.pem", "text.pem", "--tls-cert, --tls-key: expected PEM of a certificate and of its key"),
    ("one.pem", "two.key", "--tls-cert, --tls-key: expected PEM of a certificate and of its key"),
    ("one.pem", "locked.key", "expected PEM of a certificate and of its key, without a passphrase"),
    ("old.pem", "old.key", "--tls-cert: expected a certificate that holds now, got .* has expired"),
    ("early.pem", "early.key", "--tls-cert: expected a certificate that holds now, got .* is not yet valid"),
]


@pytest.mark.parametrize(("certificate", "key", "said"), REFUSED)
def test_a_certificate_that_nobody_could_take_is_refused(nodes, certificate, key, said):
    """Before the service listens, and without a question on the terminal."""
    with pytest.raises(InvalidOption, match=said):
        refuse_unusable(str(nodes / certificate), str(nodes / key))


def test_serve_names_a_certificate_that_is_not_there(nodes, tmp_path):
    (tmp_path / "models").mkdir()
    tls = ["--tls-cert", str(nodes / "none.pem"), "--tls-key", str(nodes / "one.key")]
    done = CliRunner().invoke(cli, ["serve", str(tmp_path / "models"), "--port", "0", *tls])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "InvalidOption: --tls-cert: expected a file of PEM that can be read" in done.stderr
