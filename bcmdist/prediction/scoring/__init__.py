"""Scores of predictions against observations, as additive totals."""
