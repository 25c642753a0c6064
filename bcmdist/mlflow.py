"""Models as MLflow models of the flavour pyfunc. See `bcmdist.api.interop.mlflow`."""

from bcmdist.api.interop.mlflow import _load_pyfunc as _load_pyfunc
from bcmdist.api.interop.mlflow import log_model as log_model
from bcmdist.api.interop.mlflow import save_model as save_model
