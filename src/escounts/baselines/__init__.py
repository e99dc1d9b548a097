"""Classical methods, to be beaten: no weights."""
