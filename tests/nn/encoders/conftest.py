"""Tests of encoders fill tensors by the same rule as the tests of the decoder, one folder up."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
