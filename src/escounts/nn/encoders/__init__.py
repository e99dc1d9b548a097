"""Video encoders, one file each; `registry` has their names."""
