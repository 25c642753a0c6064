"""Schedulers that speak TLS, as processes: with a certificate of theirs one works, without one is told why not."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

import dask
import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from processes import LONG, LOOPBACK, Commands, free_port, no_hang, wait_until

from bcmdist import GBCM, DaskRuntime, SerialRuntime, Settings
from bcmdist.api.running import running
from bcmdist.app.certificates import make_certificates
from bcmdist.app.cli.main import cli
from bcmdist.errors import CertificateRefused, InvalidOption, SchedulerUnreachable
from bcmdist.runtime.dask.scheduler import SchedulerMachine, answers
from bcmdist.runtime.dask.security import VARIABLE, security_of

pytestmark = [pytest.mark.alone, pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl: not on the PATH")]
SOON = 15  # seconds within which all refusals have been said, on a busy machine
FILES = ("ca.pem", "node.pem", "node.key")
FIT = ["--no-learn", "--query", "30", "--rows-per-expert", "60", "--kernel", "se"]


class Cluster:
    """A scheduler and its workers on loopback, with the certificates of a directory or none."""

    def __init__(self, folder, certificates=None):
        self.folder, self.started = folder, []
        self.address = f"{'tls' if certificates else 'tcp'}://127.0.0.1:{free_port()}"
        self.environment = Commands(folder).environment
        self.certificates = certificates
        self.scheduler = self.dask("scheduler", certificates, "--host", self.address, "--port", self.port)

    @property
    def port(self):
        return self.address.rpartition(":")[2]

    def dask(self, what, certificates, *options):
        """One of its processes."""
        if certificates:
            ca, cert, key = (str(certificates / name) for name in FILES)
            options += ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key)
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options, *LOOPBACK[2:]]
        with open(self.folder / f"{what}.log", "ab") as log:
            self.started.append(subprocess.Popen(command, env=self.environment, stderr=log, cwd=self.folder))
        return self.started[-1]

    def worker(self, certificates, *options):
        options = ("--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", *options)
        return self.dask("worker", certificates, self.address, *options)

    def machine(self):
        return SchedulerMachine(self.address, connect_seconds=LONG, security=shown(self.certificates))

    def end(self):
        for process in self.started:
            process.kill()
            process.wait(timeout=LONG)


def shown(folder):
    """What Dask is told of the certificates of a directory."""
    return security_of(*(str(folder / name) for name in FILES)) if folder else None


def flags(folder):
    """Options of our commands."""
    return [
        text
        for pair in zip(("--tls-ca", "--tls-cert", "--tls-key"), FILES, strict=True)
        for text in (pair[0], str(folder / pair[1]))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ours(folder):
    make_certificates(folder / "ours")
    return folder / "ours"


@pytest.fixture(scope="module")
def foreign(folder):
    make_certificates(folder / "foreign")
    return folder / "foreign"


@contextlib.contextmanager
def started(folder, certificates):
    cluster = Cluster(folder, certificates)
    try:
        with cluster.machine():
            yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def secure(folder, ours):
    with started(folder, ours) as cluster:
        yield cluster


@pytest.fixture
def refused():
    """Asserts that an address is refused at once, by both that connect to schedulers."""

    def refuse(error, match, address, security=None, seconds=SOON):
        for connect in (DaskRuntime, SchedulerMachine):
            begun = time.monotonic()
            with no_hang(2 * SOON), pytest.raises(error, match=match) as told:
                connect(address, security=security, connect_seconds=2)
            assert time.monotonic() - begun < seconds
            assert type(told.value) is error

    return refuse


def test_plain_is_refused(secure, refused):
    address = secure.address.replace("tls", "tcp")
    refused(CertificateRefused, rf"at {address} .* it speaks TLS; write tls://, and give --tls-ca, --tls-cert", address)


def test_a_foreign_certificate_is_refused(secure, refused, ours, foreign):
    theirs = security_of(str(ours / "ca.pem"), str(foreign / "node.pem"), str(foreign / "node.key"))
    said = rf"it does not take our certificate {foreign / 'node.pem'}; give one that the scheduler's ca.pem vouches for"
    refused(CertificateRefused, said, secure.address, theirs)


def test_a_foreign_scheduler_is_refused(secure, refused, foreign):
    said = (
        rf"its certificate is not one that {foreign / 'ca.pem'} vouches for .*; give the ca.pem that it was made with"
    )
    refused(CertificateRefused, said, secure.address, shown(foreign))


def test_a_missing_certificate_is_refused(refused):
    said = rf"expected certificates for tls://127.0.0.1:1, got none; give --tls-ca.*{VARIABLE}CA_FILE"
    refused(InvalidOption, said, "tls://127.0.0.1:1")


def test_certificates_for_an_address_without_tls_are_refused(refused, ours):
    said = r"expected tls://HOST:PORT where there are certificates .*, got tcp://127.0.0.1:1; write tls://"
    refused(InvalidOption, said, "tcp://127.0.0.1:1", shown(ours))


@pytest.mark.slow
def test_nobody_at_an_address_with_tls(refused, ours):
    address = f"tls://127.0.0.1:{free_port()}"
    refused(
        SchedulerUnreachable, f"expected a Dask scheduler at {address}, none answered within 2 s", address, shown(ours)
    )


@pytest.mark.parametrize("address", ["tls://nowhere", "tls://127.0.0.1:port", "tls://"])
def test_an_address_with_tls_that_is_none(refused, ours, address):
    refused(SchedulerUnreachable, f"expected a Dask scheduler at {address}, none answered", address, shown(ours))


@pytest.mark.slow
def test_a_scheduler_that_speaks_no_tls(refused, ours, folder):
    with started(folder, None) as plain:
        said = "it speaks no TLS; write tcp:// where the network is to be trusted"
        refused(CertificateRefused, said, plain.address.replace("tcp", "tls"), shown(ours))


def test_files_that_do_not_fit(ours, foreign, tmp_path):
    ca, cert, key = (str(ours / name) for name in FILES)
    with pytest.raises(InvalidOption, match="--tls-key: expected a file of PEM that can be read, got /no/where"):
        security_of(ca, cert, "/no/where")
    (tmp_path / "text").write_text("no PEM")
    for files in [(ca, cert, str(foreign / "node.key")), (str(tmp_path / "text"), cert, key), (ca, key, key)]:
        with pytest.raises(InvalidOption, match="expected PEM of an authority, and a certificate with its key, got"):
            security_of(*files)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tls-ca", "x"], "expected all of --tls-ca, --tls-cert and --tls-key"),
        (["--serial", "--tls-ca", "x", "--tls-cert", "x", "--tls-key", "x"], "expected --scheduler tls://HOST:PORT"),
        (["--scheduler", "tls://h:1", "--tls-cert", "x"], "expected all of --tls-ca, --tls-cert and --tls-key"),
    ],
)
def test_options_that_do_not_fit(wave, tmp_path, options, said):
    done = CliRunner().invoke(cli, ["fit", wave[0], "--model", str(tmp_path / "m"), *options])
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert not (tmp_path / "m").exists()


def test_the_command_line_refuses_before_anything_is_written(secure, wave, tmp_path, foreign):
    command = ["fit", wave[0], "--model", str(tmp_path / "m"), "--scheduler", secure.address]
    done = CliRunner().invoke(cli, [*command, *flags(foreign)])
    assert (done.exit_code, done.stderr.startswith("bcmdist: CertificateRefused: expected a Dask scheduler")) == (
        1,
        True,
    )
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_service_without_what_its_scheduler_asks_for_does_not_start(tmp_path, ours):
    pytest.importorskip("fastapi", reason="the service: pip install 'bcmdist[serve]'")
    command = ["serve", str(tmp_path), "--port", "0", "--scheduler", "tls://127.0.0.1:1"]
    done = CliRunner().invoke(cli, command)
    assert (done.exit_code, "expected certificates for tls://127.0.0.1:1" in done.stderr) == (1, True)
    done = CliRunner().invoke(cli, [*command, "--tls-ca", str(ours / "ca.pem")])
    assert (done.exit_code, "expected all of --tls-ca, --tls-cert and --tls-key" in done.stderr) == (2, True)


def test_every_command_that_takes_a_scheduler_takes_certificates():
    every = {**cli.commands, **cli.commands["submit"].commands}
    taking = {name: {p.name for p in command.params} for name, command in every.items()}
    taking = {name: names for name, names in taking.items() if "scheduler" in names}
    assert len(taking) > 8
    assert [name for name, names in taking.items() if not {"tls_ca", "tls_cert", "tls_key"} <= names] == []


def test_whether_somebody_answers_takes_certificates_of_the_configuration(secure, ours, monkeypatch):
    assert not answers(secure.address, 5)
    names = ("ca-file", "client.cert", "client.key")
    with dask.config.set({f"distributed.comm.tls.{n}": str(ours / f) for n, f in zip(names, FILES, strict=True)}):
        assert answers(secure.address, 5)


@pytest.mark.slow
def test_work_behind_tls(secure, ours, foreign, wave, tmp_path):
    """A fit by the runtime, by a client that is connected, and as a job whose coordinator borrows the scheduler's
    certificate; workers that are plain or foreign never come."""
    data = wave[0]
    settings = Settings(query=30, learn=False, kernel="se", rows_per_expert=60)
    secure.worker(ours)
    strangers = [secure.worker(None, "--death-timeout", "3"), secure.worker(foreign, "--death-timeout", "3")]
    with no_hang(4 * LONG):
        peaceful = GBCM.fit(data, settings, model=tmp_path / "serial", runtime=SerialRuntime())
        with DaskRuntime(secure.address, security=shown(ours), connect_seconds=LONG) as runtime:
            gbcm = GBCM.fit(data, settings, model=tmp_path / "tls", runtime=runtime)
        # Sums in another order, of one-thread BLAS on both sides: rounding of float64.
        np.testing.assert_allclose(gbcm.committee.total.eta, peaceful.committee.total.eta, rtol=1e-10)
        with (
            distributed.Client(secure.address, security=shown(ours), set_as_default=False) as client,
            running(client) as runtime,
        ):
            assert runtime.threads == 1
        commands = Commands(tmp_path)
        assert not any(name.startswith(VARIABLE) for name in commands.environment)
        where = ["--scheduler", secure.address, *flags(ours)]
        job = commands.call("submit", "fit", data, "--model", tmp_path / "job", *FIT, *where)["id"]
        wait_until(lambda: commands.call("status", job)["state"] not in ("submitted", "running"), "the end of the job")
        assert commands.call("status", job)["state"] == "finished"
        assert all(stranger.wait(timeout=LONG) is not None for stranger in strangers)
        with DaskRuntime(secure.address, security=shown(ours)) as runtime:
            assert runtime.threads == 1
        assert VARIABLE + "CA_FILE" not in os.environ
