"""Belief -> new points -> observations -> scores."""
