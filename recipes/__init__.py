"""One small TOML file a method; data only."""
