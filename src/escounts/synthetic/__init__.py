"""Generated repetitions: videos with the true start and end of every repetition.

From a folder of clips, from motion capture, or from nothing but code; deterministic by seed; drawn on the CPU
or on a GPU. The only generator in the project.
"""

from escounts.synthetic.clips import ClipBank, permissive, pool_rows
from escounts.synthetic.config import GeneratorConfig
from escounts.synthetic.generator import Generator, SyntheticVideo, sample_video, synthetic_videos
from escounts.synthetic.motion import MotionBank
from escounts.synthetic.plan import Plan
from escounts.synthetic.render import GeneratedBatch

__all__ = [
    "ClipBank",
    "GeneratedBatch",
    "Generator",
    "GeneratorConfig",
    "MotionBank",
    "Plan",
    "SyntheticVideo",
    "permissive",
    "pool_rows",
    "sample_video",
    "synthetic_videos",
]
