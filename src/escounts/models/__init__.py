"""The models that have names, and the files they are kept in."""
