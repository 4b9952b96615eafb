"""When, and in which order: Prefect flows and the command line. No arithmetic."""
