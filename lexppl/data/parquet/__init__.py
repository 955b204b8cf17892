"""Tables larger than memory, in Parquet files."""
