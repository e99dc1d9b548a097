"""What a session with a GPU runs, in one call: `lite` on 100 videos, ViT-B from decoded frames to tokens, encoders
alone, and the rows of a GPU for docs/speed.md.

    python benchmarks/gpu_pipeline.py --out results                    # on a GPU: about four minutes
    python benchmarks/gpu_pipeline.py --out results --parts vit,bench --seconds 60
    python benchmarks/gpu_pipeline.py --out results --parts nvdec --clips FOLDER     # by both kinds of readers
    python benchmarks/gpu_pipeline.py --out results --device cpu --tiny        # tried without one

Parts: `pipeline` (readers alone, both together, counting alone: the bottleneck has a name and a share), `vit` (frames
in the host's memory to tokens in the host's memory, as counting does it), `encoders` (ViT-B and Swin-T on resident
tensors, and what their kernels take), `bench` (engines in the form of `escounts bench`); and only where it is asked
for, `nvdec` (mixes of readers that decode with the processor and with NVDEC: two minutes). Every figure is
written to gpu_pipeline.json in the folder as soon as it is there; a part that fails leaves its error and the others
run. Needs PyAV and safetensors beside torch and numpy, of the extras none: rows are kept in memory, not as Parquet.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":  # processes that read import this file again, and need nothing of the rest
    source = str(Path(__file__).resolve().parents[1] / "src")
    sys.path.insert(0, source)
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])  # engines of `bench`
    from gpu_pipeline_parts import main

    main(__doc__)
