"""`bcmdist doctor --model`: a directory that is whole, and what is missing, altered or counted twice."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bcmdist.app.cli.main import cli
from bcmdist.app.model_check import checks_of
from bcmdist.storage.commits import open_store
from bcmdist.storage.entry import Entry

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def model(tmp_path):
    shutil.copytree(GOLDEN / "format6" / "model", tmp_path / "m")
    return tmp_path / "m"


def examined(model):
    found = CliRunner().invoke(cli, ["doctor", "--model", str(model), "--json"])
    return found.exit_code, {line["check"]: line["found"] for line in json.loads(found.stdout)["checks"]}


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6])
def test_a_model_that_is_whole(version, tmp_path):
    shutil.copytree(GOLDEN / f"format{version}" / "model", tmp_path / "m")
    code, found = examined(tmp_path / "m")
    assert code == 0, found
    assert "none of them twice" in found["ledger"]


def test_each_blob_is_read(model):
    """Whatever blob is lost or altered, the check finds it."""
    for blob in sorted((model / "blobs").iterdir()):
        data = blob.read_bytes()
        blob.unlink()
        assert examined(model)[0] == 1, blob
        blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert examined(model)[0] == 1, blob
        blob.write_bytes(data)
    assert examined(model)[0] == 0


def test_others_prune_meanwhile(model):
    """The commits that are checked stay until they are."""
    checks = checks_of(str(model))
    assert "4 can be read" in next(checks)[1]
    assert open_store(model).prune(1)["removed"] == []
    assert dict(checks)["ledger"].endswith("none of them twice")
    assert open_store(model).prune(1)["removed"] == [1, 2, 3]


def test_rows_that_count_twice(model):
    store = open_store(model)
    newest, record = store.load(), store.record(4)
    array, _, rows = newest.ledger[0].key.rpartition("[")
    stop = int(rows.rstrip("]").split(":")[1])
    segments = (*record["segments"], store.put_segment([Entry(f"{array}[{stop - 1}:{stop}]", "0" * 64, 0)]))
    facts = record["facts"] | {"partitions": len(newest.ledger) + 1}
    store.commit(5, arrays=record["arrays"], facts=facts, segments=segments, offsets={})
    code, found = examined(model)
    assert code == 1
    assert "expected each row once in the ledger" in found["model"]


def test_a_directory_without_a_model(tmp_path):
    code, found = examined(tmp_path)
    assert (code, "ModelNotFound" in found["model"]) == (1, True)
