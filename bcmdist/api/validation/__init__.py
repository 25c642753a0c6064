"""Cross-validation of a fitted model: blocks of rows are left out of its committee in turn, and predicted."""
