"""What rows that are left out say of a fit."""
