"""A process that opens other people's videos, confined: few files, no network, no new processes.

Landlock (which files) and seccomp (which system calls) are Linux's own; both only take away, and nothing in the
process can give it back. Memory and time are bounded by whoever starts the process. What is not held: sizes, times
and the existence of any file can be asked for (`stat`), and the environment is the parent's.
"""

from __future__ import annotations

import errno
import os
import site
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escounts.errors import EscountsError
from escounts.system.extras import install_command

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""In the environment of a process to be confined: Landlock confines the thread that asks for it and what that starts,
and numpy starts threads when it is imported."""
CLONE_THREAD = 0x00010000
NETWORK = ("socket", "io_uring_setup")
"""io_uring would open sockets past any filter of system calls."""
INTERNET = (2, 10, 16)
"""Families of sockets for a process that may use the network: IPv4, IPv6, and netlink, which looks names up. No Unix
sockets: services of this machine (a desktop's, Docker's) do what they are told there."""
FAMILIES = 64
"""Past the last family of sockets that Linux has."""
PROCESSES = ("fork", "vfork", "execve", "execveat", "ptrace", "process_vm_writev")
SIGNALS = ("kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
REACHING = (
    *("pidfd_getfd", "process_vm_readv", "perf_event_open", "bpf", "unshare", "setns", "mount", "open_by_handle_at"),
    *("keyctl", "add_key", "request_key", "userfaultfd", "mq_open", "mq_unlink"),
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
)
"""Into other processes: their sockets, which can be had for a number, keys, memory and queues that any process of the
account finds by a number; or past the rules of files."""
METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
"""Modes, owners, times and attributes of files, which Landlock has no rule for."""
ADMINISTRATION = (
    *("reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "swapon", "swapoff"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "acct", "syslog"),
    *("quotactl", "quotactl_fd", "iopl", "ioperm", "chroot", "pivot_root", "umount2", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "fanotify_init", "vhangup"),
)
"""What root may do to a machine, in a container without a user of its own."""
SCHEDULING = {
    **dict.fromkeys(("setpriority", "ioprio_set"), 1),
    **dict.fromkeys(("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "prlimit64"), 0),
}
"""Of a process → the argument that names it: 0 for oneself, and nobody else."""
REQUESTS = {"ioctl": (0x5412, 0x541C, 0x8901, 0x8902), "fcntl": (8, 10, 15)}
"""Requests that type into a terminal (TIOCSTI, TIOCLINUX), or have the kernel send a signal to somebody (SETOWN and
SETSIG)."""
REQUEST_BITS = 0xFFFFFFFF
FILE_SYSTEMS = "fXv"
"""Kinds of ioctl that need no more than an open file: they change its attributes (FS_IOC_SETFLAGS, FSSETXATTR,
SETVERSION), seal it (ENABLE_VERITY), and, of root, freeze and shut down the disk that it lies on (FIFREEZE)."""
KIND_BITS = 0xFF00
MODES = {"open": 2, "openat": 3, "creat": 1, "mknod": 1, "mknodat": 2}
"""Calls that make a file → the argument that is its mode: what others run with set-user-id runs as this account."""
NEW_CALLS = {"fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469, "quotactl_fd": 443}
"""Numbers, the same on every processor, of calls whose names an older libseccomp does not know."""
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd", "dxg")
"""What of /dev may be used: nothing that holds, and GPUs. Disks and terminals are files there, too."""
SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store", "/gnu/store", "/opt/rocm", "/run/opengl-driver"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/fonts", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"),
    *("/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/fs/cgroup"),
)
"""Libraries, and what the machine says of its processors, memory and devices."""
PROC = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/uptime", "/proc/loadavg"),
    *("/proc/devices", "/proc/modules", "/proc/filesystems", "/proc/driver", "/proc/sys/vm", "/proc/sys/kernel"),
)
"""The same from the kernel's own files, kept open: one that it forgets for want of memory comes back as another file,
and Landlock's rule was for the first."""
RESOLVING = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/run/systemd/resolve"),
)
"""What names of machines are looked up in, and whom to trust; where there is a network."""


@dataclass(frozen=True)
class Sandbox:
    """What a confined process may reach beside the interpreter, the libraries and GPUs. Paths need not exist.

    Args:
        readable: files and folders that it may read.
        writable: folders in which it may make, change and remove files, and read them; temporary files go to the
            first one. A device among them may be used.
        network: whether it may open connections.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False


def checked_sandbox(sandbox: Sandbox) -> Sandbox:
    """The same, where this machine can confine a process; raises EscountsError that says what it lacks."""
    if missing := missing_protections():
        lacks = "; ".join(f"{what}: {why}" for what, why in missing.items())
        raise EscountsError(f"--sandbox cannot be had on this machine ({lacks}); without it nothing is confined")
    return sandbox


def confine(sandbox: Sandbox) -> list[str]:
    """Confine this process and every thread that it starts from now on; RuntimeError where it has others already.

    Returns what could not be confined and why, in words; nothing of it where all is.
    """
    missing = missing_protections()
    if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a thread was started before the process was confined, and would stay free")
    if sandbox.writable:
        tempfile.tempdir = sandbox.writable[0]
        # matplotlib keeps its list of fonts here; without a folder that it may write to, every process makes it anew
        os.environ["MPLCONFIGDIR"] = os.path.join(sandbox.writable[0], ".matplotlib")
    if "files" not in missing:
        _confine_files(sandbox)
    if "network" not in missing:
        _confine_calls(network=sandbox.network)
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


def libraries() -> list[str]:
    """Where this interpreter finds itself and its modules; not the folder that it was started in."""
    own = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable)]
    packages = [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()]
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    private = {os.path.realpath(os.path.expanduser("~"))}
    with suppress(OSError):  # it was removed
        private.add(os.getcwd())
    # What .pth files add; the first one is the folder of the program that was started, whatever else lies there.
    added = [path for path in sys.path[1:] if path and os.path.realpath(path) not in private]
    return [*own, *packages, *named, *added, str(Path(__file__).resolve().parents[1])]


def _confine_files(sandbox: Sandbox) -> None:
    import landlock  # noqa: PLC0415 - optional: of the extra `serve`

    access = landlock.FSAccess
    every = access.all()
    reading = access.READ_FILE | access.READ_DIR
    # Nothing that is made there is run, nor is it a device: root would make itself a disk's.
    keeping = every & ~(access.EXECUTE | access.MAKE_CHAR | access.MAKE_BLOCK | access.MAKE_SOCK | access.IOCTL_DEV)
    using = (reading | access.WRITE_FILE | access.IOCTL_DEV) & every
    rules = landlock.Ruleset()

    def allow(paths: Iterable[str], rights: Any) -> None:
        for path in paths:
            with suppress(OSError):  # it is not there, or not for this account: whoever needs it says so
                rules.allow(path, rules=rights if os.path.isdir(path) else rights & access.all_file())

    for folder in sandbox.writable:
        if not os.path.exists(folder):
            os.makedirs(folder)
        allow([folder], keeping if os.path.isdir(folder) else using)
    allow(map(str, (path for name in DEVICES for path in Path("/dev").glob(name))), using)
    kernel = [f"/proc/{os.getpid()}", *PROC]
    for path in kernel:
        with suppress(OSError):
            os.open(path, os.O_PATH)
    machine = [*SYSTEM, *kernel, *(RESOLVING if sandbox.network else ())]
    allow([*libraries(), *machine, *sandbox.readable], reading | access.EXECUTE)
    rules.apply()


def _confine_calls(*, network: bool) -> None:
    import pyseccomp  # noqa: PLC0415 - optional: of the extra `serve`

    argument = pyseccomp.Arg
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)

    def refuse(call: str, *conditions: object, error: int = errno.EPERM) -> None:
        number = NEW_CALLS.get(call) or pyseccomp.resolve_syscall(pyseccomp.system_arch(), call)
        rules.add_rule(pyseccomp.ERRNO(error), number, *conditions)

    for call in (*PROCESSES, *SIGNALS, *REACHING, *METADATA, *ADMINISTRATION, *NETWORK[1:]):
        refuse(call)
    if network:
        for family in set(range(FAMILIES)) - set(INTERNET):
            refuse("socket", argument(0, pyseccomp.EQ, family))
        refuse("socket", argument(0, pyseccomp.GE, FAMILIES))
    else:
        refuse("socket")
    for call, requests in REQUESTS.items():
        for request in requests:
            refuse(call, argument(1, pyseccomp.MASKED_EQ, REQUEST_BITS, request))
    for kind in FILE_SYSTEMS:
        refuse("ioctl", argument(1, pyseccomp.MASKED_EQ, KIND_BITS, ord(kind) << 8))
    for call, place in MODES.items():
        for bit in (stat.S_ISUID, stat.S_ISGID):
            refuse(call, argument(place, pyseccomp.MASKED_EQ, bit, bit))
    refuse("openat2", error=errno.ENOSYS)  # what it asks for cannot be seen, and nothing here needs it
    # Threads are made by clone, too; what clone3 asks for cannot be seen, and the C library goes back to clone.
    refuse("clone3", error=errno.ENOSYS)
    refuse("clone", argument(0, pyseccomp.MASKED_EQ, CLONE_THREAD, 0))
    # A process signals itself when it aborts, and its own threads: nobody else.
    refuse("tgkill", argument(0, pyseccomp.NE, os.getpid()))
    # Limits are set for oneself: a limit of no processor time ends whoever it is set for.
    for call, place in SCHEDULING.items():
        refuse(call, argument(place, pyseccomp.NE, 0))
    rules.load()
