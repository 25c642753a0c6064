"""Diagnostics of a fitted committee: effective degrees of freedom and calibration."""
