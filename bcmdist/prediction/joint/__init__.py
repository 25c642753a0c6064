"""Joint distributions of f at many new points: covariances, weighted sums and samples."""
