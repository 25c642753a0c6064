"""HTML report on predictions of a data set: scores, calibration, relevance, worst rows, advice."""
