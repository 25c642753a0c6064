"""Export to other packages: ONNX graphs, MLflow pyfunc models, ArviZ inference data."""
