"""The benchmark of hostile clients in quick mode: each attack is survived, and memory stays bounded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import TESTS

pytest.importorskip("fastapi", reason="the service: pip install 'bcmdist[serve]'")
SCRIPT = TESTS / "benchmarks" / "hostile.py"


@pytest.mark.nightly
@pytest.mark.slow
def test_nobody_is_kept_out_by_hostile_clients(tmp_path):
    """How fast answers are is for a quiet machine; that there is one, and how much memory grows, for any."""
    environment = os.environ | {"PYTHONPATH": str(Path(SCRIPT).parents[2]), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--json"], env=environment, capture_output=True, text=True, timeout=300
    )
    found = json.loads(done.stdout)
    assert len(found["attacks"]) == 15
    wrong = {name: one for name, one in found["attacks"].items() if one["health_errors"] or one["point_errors"]}
    assert wrong == {}, done.stderr
    assert found["all"]["exit"] == 0
    assert found["all"]["grown_mb"] < 200.0
