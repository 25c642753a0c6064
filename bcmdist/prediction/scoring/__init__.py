"""Scores of predictions against observations, as totals that add."""
