"""What a confined process can still do, and what it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from movies import bouncing, write_movie

from escounts.system.sandbox import missing_protections

ATTEMPTS = """
import ctypes, errno, json, os, pyseccomp, socket, subprocess, sys, tempfile, threading
from pathlib import Path
from escounts.system.sandbox import confine

scratch, elsewhere, video = map(Path, sys.argv[1:])
missing = confine([scratch])
done = {"missing": missing}

def attempt(name, work):
    try:
        work()
        done[name] = "done"
    except Exception as error:
        done[name] = type(error).__name__

def overwrite():
    (elsewhere / "mine.txt").write_text("changed")

attempt("write in scratch", lambda: (scratch / "a.txt").write_text("x"))
attempt("temporary file", lambda: tempfile.TemporaryFile().close())
attempt("write elsewhere", lambda: (elsewhere / "b.txt").write_text("x"))
attempt("overwrite", overwrite)
attempt("truncate", lambda: os.truncate(elsewhere / "mine.txt", 0))
attempt("delete", lambda: (elsewhere / "mine.txt").unlink())
attempt("rename", lambda: (elsewhere / "mine.txt").rename(scratch / "stolen.txt"))
attempt("read", lambda: (elsewhere / "mine.txt").read_text())
attempt("network", lambda: socket.create_connection(("127.0.0.1", 9), timeout=1))
attempt("name lookup", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("command", lambda: subprocess.run(["true"], check=True))
attempt("fork", os.fork)
library, parent, mine = ctypes.CDLL(None, use_errno=True), os.getppid(), os.getpid()
def call(name, *arguments):
    number = pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
    if library.syscall(number, *arguments):
        raise PermissionError if ctypes.get_errno() == errno.EPERM else RuntimeError(ctypes.get_errno())
information = (ctypes.c_int * 32)(0, 0, -1)  # si_code: SI_QUEUE, as anybody may send it
attempt("kill", lambda: os.kill(parent, 0))
attempt("tgkill", lambda: call("tgkill", parent, parent, 0))
attempt("rt_sigqueueinfo", lambda: call("rt_sigqueueinfo", parent, 0, information))
attempt("rt_tgsigqueueinfo", lambda: call("rt_tgsigqueueinfo", parent, parent, 0, information))
attempt("pidfd_send_signal", lambda: call("pidfd_send_signal", os.pidfd_open(parent), 0, None, 0))
limits = (ctypes.c_ulong * 2)()
attempt("limits of the parent", lambda: call("prlimit64", parent, 0, None, limits))
attempt("own limits", lambda: call("prlimit64", 0, 0, None, limits))
def steal():
    number = pyseccomp.resolve_syscall(pyseccomp.system_arch(), "pidfd_getfd")
    if library.syscall(number, os.pidfd_open(parent), 0, 0) < 0:
        raise PermissionError if ctypes.get_errno() == errno.EPERM else RuntimeError
attempt("sockets of the parent", steal)
for name in ("process_vm_readv", "unshare", "setns", "mount", "perf_event_open", "bpf", "open_by_handle_at"):
    attempt(name, lambda: call(name, 0, 0, 0, 0, 0, 0))
attempt("nothing", lambda: Path("/dev/null").write_text("x"))
attempt("a terminal", lambda: open("/dev/ptmx", "r+b", buffering=0).close())
attempt("signal to itself", lambda: call("tgkill", mine, mine, 0))
def thread():
    seen = []
    started = threading.Thread(target=lambda: attempt("write from a thread", overwrite))
    started.start(); started.join()
attempt("thread", thread)
def count():
    import escounts
    done["count"] = escounts.count(video, model="spectral").count
attempt("counting", count)
print(json.dumps(done))
"""


def test_a_confined_process_counts_and_does_nothing_else(tmp_path: Path) -> None:
    missing = missing_protections()
    if missing:
        pytest.skip(f"this machine cannot confine {missing}")
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    video = write_movie(tmp_path / "a.mp4", bouncing(4, 4.0))
    arguments = [sys.executable, "-c", ATTEMPTS, str(scratch), str(elsewhere), str(video)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    done = json.loads(ended.stdout.splitlines()[-1])
    assert done.pop("missing") == [] and done.pop("count") == 4
    allowed = {"write in scratch", "temporary file", "read", "thread", "signal to itself", "counting"}
    allowed |= {"own limits", "nothing"}
    assert {name for name, said in done.items() if said == "done"} == allowed, done
    refused = {name: said for name, said in done.items() if name not in allowed}
    assert set(refused.values()) <= {"PermissionError"}, refused
    assert (elsewhere / "mine.txt").read_text() == "mine" and not (elsewhere / "b.txt").exists()
