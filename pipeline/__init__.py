"""What happens to data: stages over polars and Parquet, training and embedding on Ray, scores, the registry."""
