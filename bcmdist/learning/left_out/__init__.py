"""Model choices by left-out rows: their densities, scores, and adjustment of variances."""
