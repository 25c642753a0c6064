"""Predictions where inputs are not known exactly."""
