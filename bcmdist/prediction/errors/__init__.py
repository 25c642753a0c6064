"""Errors of predictions: their distribution, calibration of class probabilities, and drift of arriving data."""
