"""The machine beneath: files written whole, processes of our own, confinement, optional packages."""
