"""The public interface: GBCM, estimators, fitting, requests and their execution, mixtures, table input and output."""
