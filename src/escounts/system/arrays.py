"""Names of numpy arrays by what they hold; the shape is said where one is used."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Array32: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Image: TypeAlias = npt.NDArray[np.uint8]
"""A picture or several, 0 to 255: (height, width, 3), or grey."""
