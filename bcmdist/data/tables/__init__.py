"""Tables as data sets: .csv, .parquet, .npz and .npy files in, tables out."""
