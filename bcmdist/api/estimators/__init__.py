"""scikit-learn estimators. They need scikit-learn 1.7 or newer: pip install 'bcmdist[sklearn]'."""
