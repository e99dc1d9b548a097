"""Datasets, training and evaluation of any model; whoever only counts imports none of it."""
