"""Leave-one-out residuals measured at the end of a fit, for the error distribution."""
