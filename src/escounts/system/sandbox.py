"""A process that opens other people's videos, confined: no network, no new processes, files written in few places.

Landlock (which files may be written) and seccomp (which system calls are answered) are Linux's own; both only take
away, and nothing in the process can give it back. Memory and time are bounded by whoever starts the process.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from escounts.system.extras import install_command

CLONE_THREAD = 0x00010000
NETWORK = ("socket", "io_uring_setup")
"""io_uring would open sockets past any filter of system calls."""
PROCESSES = ("fork", "vfork", "execve", "execveat", "ptrace", "process_vm_writev")
SIGNALS = ("kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
REACHING = (
    "pidfd_getfd",
    "process_vm_readv",
    "perf_event_open",
    "bpf",
    "unshare",
    "setns",
    "mount",
    "open_by_handle_at",
)
"""Into other processes, whose sockets can be had for a number, or past the rules of files."""
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd", "dxg")
"""What may be written to in /dev: nothing that holds, and GPUs. Disks and terminals are files there, too."""


def confine(writable: Sequence[Path]) -> list[str]:
    """Confine this process and every thread that it starts from now on; before threads are started and files opened.

    writable: the only folders in which files may be made, changed or removed; temporary files go to the first one.
    Returns what could not be confined and why, in words; nothing of it where all is.
    """
    missing = missing_protections()
    if writable:
        tempfile.tempdir = str(writable[0])
    if "files" not in missing:
        _confine_files(writable)
    if "network" not in missing:
        _confine_calls()
    return [f"{what}: {why}" for what, why in missing.items()]


def missing_protections() -> dict[str, str]:
    """What cannot be confined on this machine ("files", "network") → why, and what to do about it."""
    if sys.platform != "linux":
        return dict.fromkeys(("files", "network"), f"{sys.platform} has neither Landlock nor seccomp")
    missing = {}
    try:
        import landlock  # noqa: PLC0415 - optional: of the extra `serve`

        if landlock.landlock_abi_version() < 3:
            missing["files"] = (
                f"Landlock of this kernel is too old ({os.uname().release}); 6.2 or later has all of it"
            )
    except ImportError:
        missing["files"] = f"the package landlock is not installed: {install_command('serve')}"
    except OSError as error:
        missing["files"] = f"this kernel has no Landlock, or it is switched off ({error.strerror})"
    try:
        import pyseccomp  # noqa: F401, PLC0415 - optional: of the extra `serve`, and wants the system's libseccomp
    except ImportError:
        missing["network"] = f"pyseccomp or the system's libseccomp is not installed: {install_command('serve')}"
    except (OSError, RuntimeError) as error:
        missing["network"] = f"libseccomp cannot be used: {error}"
    return missing


def _confine_files(writable: Sequence[Path]) -> None:
    import landlock  # noqa: PLC0415 - optional: of the extra `serve`

    access = landlock.FSAccess
    reading = access.READ_FILE | access.READ_DIR | access.EXECUTE | access.IOCTL_DEV
    rules = landlock.Ruleset(restrict_rules=access.all() & ~reading)
    for folder in writable:
        folder.mkdir(parents=True, exist_ok=True)
        rules.allow(str(folder))
    devices = [str(path) for name in DEVICES for path in Path("/dev").glob(name)]
    rules.allow(*devices, rules=access.WRITE_FILE)
    rules.apply()


def _confine_calls() -> None:
    import pyseccomp  # noqa: PLC0415 - optional: of the extra `serve`

    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for call in (*NETWORK, *PROCESSES, *SIGNALS, *REACHING):
        rules.add_rule(refuse, call)
    # Threads are made by clone, too; what clone3 asks for cannot be seen, and the C library goes back to clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    # A process signals itself when it aborts, and its own threads: nobody else.
    rules.add_rule(refuse, "tgkill", pyseccomp.Arg(0, pyseccomp.NE, os.getpid()))
    # Limits are set for oneself: a limit of no processor time ends whoever it is set for.
    rules.add_rule(refuse, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    rules.load()
