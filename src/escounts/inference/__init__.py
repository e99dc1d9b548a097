"""The neural counting models: from frames to a stitched density."""
