"""escounts counts repetitions in videos: how many, when, and how sure."""

__version__ = "0.1.0"
