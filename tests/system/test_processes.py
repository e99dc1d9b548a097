"""Processes of our own: quiet when their parent is killed, deaf to Ctrl-C, and loud about faults of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from escounts.system import processes
from escounts.system.processes import Child, Line, are_numbers, parsed_report
from escounts.system.task_processes import TaskError, TaskProcess

KILLED = """
import os, signal
from escounts.system import processes
started = processes.spawned
def killed(environment):
    process = started(environment)
    os.kill(os.getpid(), signal.SIGKILL)
    return process
processes.spawned = killed
processes.Child(print)
"""


def test_a_child_whose_parent_is_killed_before_it_says_what_to_do_ends_without_a_word() -> None:
    """What is read here ends when the child has ended, too: it holds the same pipe."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")


def busy_for_ever(line: Line, marker: Path) -> None:
    line.listen()
    marker.write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


BUSY = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from collections.abc import Callable
from pathlib import Path
from test_processes import busy_for_ever
from escounts.system.processes import Child
marker = Path(sys.argv[2])
child = Child(busy_for_ever, marker)
while not marker.exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_busy_child_ends_with_its_parent(tmp_path: Path) -> None:
    """It counted on until its video was done."""
    arguments = [sys.executable, "-c", BUSY, str(Path(__file__).parent), str(tmp_path / "marker")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, ""), "and both have let go of stderr"


def failing(line: Line) -> None:
    raise ValueError("a fault of its own")


def test_a_fault_is_told_as_long_as_there_is_somebody_to_tell(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child(failing)
    with pytest.raises(EOFError):
        child.take(300)
    assert child.death() == "its process died (exit code 1)"
    child.end()
    assert "ValueError: a fault of its own" in capfd.readouterr().err


def interrupted(line: Line) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    line.report("still", "here")


def test_ctrl_c_is_the_parents_to_handle() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child = Child(interrupted)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before, "the parent hears it as before"
    assert child.take(300) == ["still", "here"]
    child.end()


def printing(line: Line) -> None:
    print("a library says something")
    line.report("done", [1, 2.5])


def test_what_a_child_prints_is_not_taken_for_a_report(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child(printing)
    assert child.take(300) == ["done", [1, 2.5]]
    child.end()
    assert "a library says something" in capfd.readouterr().err


def forked(line: Line) -> None:
    line.report("child", os.fork() == 0)
    time.sleep(60)


def test_a_killed_child_is_ended_though_a_process_of_its_own_holds_the_line() -> None:
    child = Child(forked)
    assert child.take(300) is not None
    began = time.monotonic()
    child.end()
    assert time.monotonic() - began < 10 and child.exitcode == -signal.SIGKILL
    with pytest.raises(OSError):
        child.send("too late")


@pytest.mark.parametrize(
    "content",
    ["5", "[]", '["a"]', '["a", 1, 2]', '[1, "a"]', '["a", NaN]', '["a", 1e999]', "[" * 100_000, "\x80", ""],
)
def test_what_is_not_a_report_is_refused(content: str) -> None:
    with pytest.raises(ValueError):
        parsed_report(content.encode("latin-1"), 2)
    assert parsed_report(json.dumps(["a", {"b": [1]}]).encode(), 2) == ["a", {"b": [1]}]
    assert are_numbers([1, 2.0]) and not are_numbers(["1"])


def too_long(line: Line) -> None:
    os.write(line._reports.fileno(), processes.HEAD.pack(processes.MAX_REPORT + 1))
    time.sleep(60)


def test_a_report_that_says_it_is_endless_is_not_waited_for() -> None:
    child = Child(too_long)
    with pytest.raises(ValueError, match="is longer than"):
        child.take(300)
    child.end()


def telling(step: int, tell: Callable[[int], None]) -> Callable[[int], int]:
    """In a process: tells of a task before it answers."""

    def work(task: int) -> int:
        tell(task)
        tell(task + step)
        return task * 10

    return work


def test_what_a_process_tells_of_a_task_is_heard_before_its_answer() -> None:
    heard: list[int] = []
    with TaskProcess(telling, 3, hear=heard.append) as process:
        assert process.ask(1) == 10 and heard == [1, 4]

    def refuse(told: int) -> None:
        raise ValueError("no such number")

    with TaskProcess(telling, 3, hear=refuse) as process, pytest.raises(TaskError, match="not a report"):
        process.ask(1)
