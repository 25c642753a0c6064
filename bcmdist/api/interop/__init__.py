"""Models in the formats of other packages: ONNX graphs, MLflow's pyfunc models, ArviZ's inference data."""
