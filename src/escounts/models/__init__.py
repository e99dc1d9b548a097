"""Encoders, the decoder, checkpoints, and the models that have names."""
