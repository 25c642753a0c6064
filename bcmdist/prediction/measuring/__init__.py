"""What rows that are left out say of the errors of a fit."""
