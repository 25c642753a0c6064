"""Google Cloud Storage and Azure: URLs, conditional puts, data and models, and clear errors."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.groups import absolute_url
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption, StorageUnreachable, StoreIgnoresConditions
from bcmdist.storage.commits import open_store
from bcmdist.storage.locate import open_storage

pytest.importorskip("obstore")

from servers import set_azure, set_gcs, small_gcs


def test_each_location_has_one_name():
    assert absolute_url("gcs://bucket//a/") == "gs://bucket/a"
    assert absolute_url("abfss://box/a") == absolute_url("abfs://box/a/") == "az://box/a"
    with pytest.raises(InvalidOption, match=r"abfss://...: .*AZURE_STORAGE_ACCOUNT_NAME and az://CONTAINER/PREFIX"):
        absolute_url("abfss://box@account.dfs.core.windows.net/a")
    with pytest.raises(InvalidOption, match="or az://CONTAINER/PREFIX, got 'ftp://host/a'"):
        open_storage("ftp://host/a")
    with pytest.raises(InvalidOption, match="expected az://CONTAINER/PREFIX, got no container"):
        open_storage("az://")


def test_data_and_a_model_on_google_cloud_storage(monkeypatch, rng):
    X = rng.uniform(-2, 2, (100, 1))
    with small_gcs() as server:
        set_gcs(monkeypatch, server.url)
        write_dataset("gs://bucket/data.zarr", {"X": X, "y": X[:, 0]}, rows_per_chunk=50)
        settings = Settings(partition="chunks", kernel="se", query=10, rows_per_expert=50, learn=False)
        gbcm = GBCM.fit("gs://bucket/data.zarr", settings, model="gs://bucket/model")
        assert GBCM.load("gs://bucket/model").committee.total.rows == 100
        assert np.isfinite(gbcm.predict(X[:3])["mean"]).all()


def test_a_google_store_that_ignores_generations_is_refused(monkeypatch):
    with small_gcs(conditional=False) as server:
        set_gcs(monkeypatch, server.url)
        with pytest.raises(StoreIgnoresConditions, match="gs://bucket/model"):
            open_store("gs://bucket/model").put_arrays({"a": np.ones(3)})
        assert server.objects == {}


def test_wrong_credentials_are_named(monkeypatch):
    set_azure(monkeypatch, "http://127.0.0.1:1/tester", "no base64!")
    with pytest.raises(StorageUnreachable, match=r"az://box/a: .*AZURE_STORAGE_ACCOUNT_NAME"):
        open_storage("az://box/a").names("")
