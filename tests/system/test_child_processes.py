"""Processes of our own: quiet when their parent is killed, deaf to Ctrl-C, and loud about faults of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from escounts.system import child_processes
from escounts.system.child_processes import PROGRAM, spawn_context

KILLED = """
import os, signal
from multiprocessing import util
from escounts.system.child_processes import spawn_context
started = util.spawnv_passfds
def killed(path, command, handles):
    child = started(path, command, handles)
    if "--multiprocessing-fork" in command:
        os.kill(os.getpid(), signal.SIGKILL)
    return child
util.spawnv_passfds = killed
spawn_context().Process(target=print).start()
"""


def test_a_child_whose_parent_is_killed_before_it_says_what_to_do_ends_without_a_word() -> None:
    """What is read here ends when the child has ended, too: it holds the same pipe."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")


@pytest.mark.parametrize("fault", ["EOFError(1)", "__import__('pickle').UnpicklingError(1)", "ValueError(1)"])
def test_a_fault_is_told_as_long_as_there_is_somebody_to_tell(fault: str) -> None:
    def said(parent: int) -> str:
        program = PROGRAM.format(usual=f"raise {fault}", parent=parent)
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300).stderr

    assert "Traceback" in said(os.getpid())
    assert ("Traceback" in said(0)) is fault.startswith("ValueError")


def _interrupt_yourself() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit(7)


def test_ctrl_c_is_the_parents_to_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    # A service of tests that ran before in this process keeps warm processes in its place.
    monkeypatch.setattr(child_processes, "_context", child_processes._Context())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process = spawn_context().Process(target=_interrupt_yourself)
    process.start()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before, "the parent hears it as before"
    process.join(300)
    assert process.exitcode == 7
