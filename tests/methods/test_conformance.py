"""Each method, those of the core and those with folders of their own, passes the checks that are shipped."""

from pathlib import Path

import numpy as np
import pytest

import bcmdist.methods
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.experts import VARIANTS, experts
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.testing import check_method

FOUND = {**experts(), **{method.name: method for method in VARIANTS.values()}}
FOLDERS = {path.parent.name for path in Path(bcmdist.methods.__file__).parent.glob("*/method.py")}


def test_each_folder_has_a_method():
    homes = {type(method).__module__.split(".")[2] for method in FOUND.values()}
    assert homes >= FOLDERS


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_method_conforms(name, rng):
    method = FOUND[name]
    X = rng.standard_normal((60, 2))
    check_method(
        method,
        BasisInputs(
            sample=X,
            targets=np.sin(X[:, :1]),
            noise=np.full(60, 0.1),
            rows=60,
            kernel=parse_kernel(method.defaults.kernel if method.defaults.kernel != "auto" else "se", inputs=2),
            mean=Mean("constant" if method.capabilities.mean else "zero"),
            count=8,
            method="kmeans",
            seed=0,
            residual=method.residual,
            low=X.min(axis=0),
            high=X.max(axis=0),
            row=np.arange(60),
            options=method.options(),
        ),
    )
