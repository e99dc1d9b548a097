"""A process that has escounts imported and forks a child for each command: killing is tried often, importing once.

Each line on stdin is a JSON list of arguments; "PID" comes back when the child has begun, then "END code".
"""

from __future__ import annotations

import io
import json
import os
import sys


def main() -> None:
    import torch
    import torch.utils.tensorboard

    from escounts.cli import main as command
    from escounts.output import mp4, png

    assert mp4 and png

    torch.set_num_threads(1)  # no threads before the fork
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdin = io.StringIO()  # the next command is not the child's to read
            sys.argv = ["escounts", *json.loads(line)]
            try:
                command()
            except SystemExit as stopped:
                sys.stdout.flush()
                os._exit(int(stopped.code or 0))
            except BaseException:
                import traceback

                traceback.print_exc()
                sys.stderr.flush()
            os._exit(99)
        print(f"PID {child}", flush=True)
        _, status = os.waitpid(child, 0)
        print(f"END {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
