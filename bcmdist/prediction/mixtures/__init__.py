"""Predictions of several committees, averaged."""
