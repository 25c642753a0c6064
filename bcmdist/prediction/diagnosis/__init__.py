"""How far a committee can be trusted: degrees of freedom, calibration."""
