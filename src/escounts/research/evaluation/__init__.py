"""Metrics, predictions, and the tables and figures made of them."""
