"""Your own action: labels to a model that counts it."""
