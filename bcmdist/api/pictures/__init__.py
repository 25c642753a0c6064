"""Diagnostic pictures of models: calibration, residuals, relevance, learning curves, drift (the extra `plot`)."""
