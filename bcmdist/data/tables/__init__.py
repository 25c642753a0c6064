"""Tables: .csv, .parquet, .npz, .npy and grid files read as data sets, and tables written to files."""
