"""Evaluations: a function in each file, with what reads and knows the files that its options name."""
