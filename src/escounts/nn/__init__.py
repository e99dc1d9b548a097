"""The networks alone: encoders, the decoder of equations 2 to 5, its heads."""
