"""Marginalised networks: regression on hidden units whose inner weights are trained by the evidence."""
