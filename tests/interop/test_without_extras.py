"""What is said where a package is not installed, before anything is written."""

import sys

import pytest

import bcmdist.arviz
import bcmdist.mlflow
from bcmdist import GBCM, Mixture, Settings
from bcmdist.errors import MissingExtra


@pytest.fixture
def gbcm(wave):
    path, _, _ = wave
    return GBCM.fit(path, Settings(partition="chunks", query=20, learn=False, kernel="se"))


@pytest.mark.parametrize(
    ("package", "ask"),
    [
        ("onnx", lambda gbcm, path: gbcm.to_onnx(path)),
        ("mlflow.models", lambda gbcm, path: bcmdist.mlflow.save_model(gbcm, path)),
        ("arviz", lambda gbcm, _: bcmdist.arviz.to_inference_data(Mixture([gbcm]))),
    ],
)
def test_the_extra_is_named(package, ask, gbcm, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    extra = package.partition(".")[0]
    with pytest.raises(MissingExtra, match=rf"pip install 'bcmdist\[{extra}\]'"):
        ask(gbcm, tmp_path / "out")
    assert not (tmp_path / "out").exists()
