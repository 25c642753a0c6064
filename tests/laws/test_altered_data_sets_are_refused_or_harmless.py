"""Data sets whose metadata were altered, and what fits, predictions, scores and ingestion make of them.

An error that says what is wrong, or numbers; never an error that nobody foresaw.
"""

import itertools
import json
import shutil
import warnings
from collections import Counter

import numpy as np
import pytest
import zarr
from conftest import SEED
from test_altered_models_are_refused_or_harmless import altered_json

from bcmdist import GBCM, Settings
from bcmdist.api.carry_out import carry_out
from bcmdist.api.requests import FitRequest, IngestRequest, PredictRequest, ScoreRequest
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistError, DataDamaged
from bcmdist.runtime.interface import SerialRuntime

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 40
GIVEN = Settings(query=8, rows_per_expert=20, learn=False, kernel="se", task="regression")


def make_stored(folder):
    """A data set of each format with coordinates of rows and columns, and a model of its rows."""
    rng = np.random.default_rng(SEED)
    X = np.round(rng.standard_normal((ROWS, 2)), 2)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.sin(X[:, 0]), "name": [f"row{k}" for k in range(ROWS)]})
    frame.to_csv(folder / "rows.csv", index=False)
    import_file(folder / "rows.csv", folder / "v3.zarr", roles=Roles("y", id="name"), rows_per_chunk=20)
    group = zarr.open_group(folder / "v2.zarr", mode="w", zarr_format=2)
    for name, values, along in [
        ("weight", np.ones(ROWS), ["row"]),
        ("X", X, ["row", "column"]),
        ("y", np.sin(X[:, 0]), ["row"]),
        ("height", X[:, 1], ["row"]),
    ]:
        array = group.create_array(name, data=values, chunks=(20, *values.shape[1:]))
        array.attrs.update({"_ARRAY_DIMENSIONS": along, "coordinates": "height" if name == "y" else ""})
    GBCM.fit((X, np.sin(X[:, 0])), GIVEN, model=folder / "model")
    assert X.shape == (ROWS, 2)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    make_stored(folder)
    return folder


USES = {
    "predict": lambda model, data, out: PredictRequest(model, data, f"{out}.zarr"),
    "predict to a table": lambda model, data, out: PredictRequest(model, data, f"{out}.csv"),
    "score": lambda model, data, out: ScoreRequest(model, data),
    "ingest": lambda model, data, out: IngestRequest(model, data),
    "fit": lambda model, data, out: FitRequest(data, f"{out}.model", GIVEN),
}


def altered(path, rng):
    """Alter one of the metadata documents of a data set in one place; what was done."""
    files = sorted(file for file in path.rglob("*") if file.name in ("zarr.json", ".zarray", ".zattrs", ".zgroup"))
    file = files[rng.integers(len(files))]
    whole = file.read_bytes()
    what = rng.choice(["json", "json", "json", "json", "flipped", "torn", "none"])
    done = what
    if what == "json" and (document := json.loads(whole)):
        document, done = altered_json(document, rng)
        file.write_text(json.dumps(document))
    elif what == "flipped":
        place = rng.integers(len(whole))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << rng.integers(8)]) + whole[place + 1 :])
    elif what == "torn":
        file.write_bytes(whole[: rng.integers(len(whole))])
    else:
        file.unlink()
    return f"{file.relative_to(path.parent)}: {done}"


def outcome(use, model, data, out):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            carry_out(USES[use](str(model), str(data), str(out)), SerialRuntime)
    except BcmdistError as error:
        return "named" if str(error) else "unforeseen", error
    except Exception as error:
        return "unforeseen", error
    return "used", None


def campaign(stored, tmp_path, count, seed):
    """Outcomes of seeded changes: (word, what was done, use, error)."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        folder = tmp_path / str(number)
        data = folder / str(rng.choice(["v2.zarr", "v3.zarr"]))
        shutil.copytree(stored / data.name, data)
        shutil.copytree(stored / "model", folder / "model")
        done = altered(data, rng)
        for use in USES:
            word, error = outcome(use, folder / "model", data, folder / f"out of {use}")
            yield word, done, use, error
        shutil.rmtree(folder)


def assert_all_foreseen(found):
    words = Counter(word for word, *_ in found)
    print(f"seed {SEED}: {dict(words)}")
    wrong = [line for line in found if line[0] == "unforeseen"]
    assert not wrong, "\n".join(map(repr, wrong))
    return words


@pytest.mark.slow
def test_what_was_not_altered_is_used(stored, tmp_path):
    for use, data in itertools.product(USES, ["v2.zarr", "v3.zarr"]):
        shutil.copytree(stored / "model", model := tmp_path / f"{use} {data}")
        word, error = outcome(use, model, stored / data, tmp_path / f"out of {use} {data}")
        assert word == "used", (use, data, error)


@pytest.mark.filterwarnings("ignore:.*the model knows no names")
@pytest.mark.parametrize("file", ["y/zarr.json", "column/zarr.json", "row/zarr.json"])
def test_torn_metadata_are_named(stored, tmp_path, file):
    shutil.copytree(stored / "v3.zarr", data := tmp_path / "v3.zarr")
    (data / file).write_bytes((data / file).read_bytes()[:60])
    with pytest.raises(DataDamaged, match=f"v3.zarr: the metadata of {file[:-10]} cannot be read"):
        GBCM.load(stored / "model").predict_zarr(data, tmp_path / "out.zarr")


@pytest.mark.slow
@pytest.mark.nightly
def test_altered_metadata_are_foreseen(stored, tmp_path):
    words = assert_all_foreseen(list(campaign(stored, tmp_path, 150, SEED)))
    assert min(words["named"], words["used"]) > 100
