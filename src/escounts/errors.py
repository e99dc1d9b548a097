"""Errors a person can act on. The command line prints them as one line, without a traceback."""


class EscountsError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class VideoError(EscountsError):
    """A video cannot be opened or decoded, or has nothing to count in it."""


class ExemplarError(EscountsError):
    """An exemplar is malformed, empty, or lies outside its video."""


class ModelError(EscountsError):
    """A model name is unknown, or its weights are missing, damaged or of another model."""


class DataError(EscountsError):
    """A dataset, a label file or a token store is missing, damaged or inconsistent."""


class OutputError(EscountsError):
    """A result cannot be written where it was asked for."""
