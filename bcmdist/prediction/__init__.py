"""Predictive distributions of new observations from a committee's posterior, and their scores."""
