"""The OpenAPI document against what is answered: requests that schemathesis makes of it, of a model that is there."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
from services import QUICK, Server

from bcmdist import GBCM, Settings
from bcmdist.app.service.tokens import add_token

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="pip install schemathesis"),
]


def test_every_answer_is_one_that_the_document_tells_of(tmp_path):
    X = np.random.default_rng(0).uniform(-2, 2, (60, 1))  # one column, as rows that are made up often have
    GBCM.fit((X, np.sin(X[:, 0])), Settings(**QUICK), model=tmp_path / "models" / "wave")
    token = add_token(tmp_path / "tokens.json", "admin", ["admin"])
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"path.name" = "wave"\n"query.commit" = "2"\n')
    server = Server(tmp_path / "models", "--token-file", str(tmp_path / "tokens.json"))
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    command += ["--config-file", str(tmp_path / "schemathesis.toml"), "run", f"{server.url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {token}", "--max-examples", "5", "--seed", "1", "--rate-limit", "150/s"]
    # Which columns there are, and whether they have names, is the model's to say: others fit the document all the same.
    command += ["--exclude-checks", "positive_data_acceptance"]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    finally:
        assert server.end() == 0
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "passed" in done.stdout, done.stdout
    codes = [line.split()[-3] for line in server.log.read_text().splitlines() if "/predict" in line]
    assert "200" in codes, json.dumps(sorted(set(codes)))
    assert "500" not in codes
