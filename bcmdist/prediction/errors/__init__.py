"""How wrong predictions are: error distribution, calibration of probabilities, and drift of what arrives."""
