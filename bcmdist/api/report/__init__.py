"""HTML report on predictions of a data set: scores, baselines, calibration, relevance, worst rows, advice."""
