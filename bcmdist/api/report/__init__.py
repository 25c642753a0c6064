"""A page about how far predictions of a data set can be trusted: scores, baselines, calibration, rows, advice."""
