"""Datasets, their labels and tokens, and generated repetitions."""
