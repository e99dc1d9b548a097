"""The paper's tables, ablations, figures, rivals and protocol: `python -m paper table 3a` in a checkout."""
