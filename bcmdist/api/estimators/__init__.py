"""Estimators as scikit-learn knows them. They need scikit-learn 1.7 or newer: pip install 'bcmdist[sklearn]'."""
