"""Makes Python on Linux that of a system which has nothing but Python: there is no /proc, and none of
the modules and functions that Windows does not have. A test has it in PYTHONPATH.

Only Blueque misses the modules: the standard library has other ways on other systems.
"""

from __future__ import annotations

import builtins
import os
import select
import signal
import socket
import sys
from typing import Any

MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: """
        O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH fork geteuid getgid getpgid getsid getuid killpg
        memfd_create pidfd_open pipe2 posix_spawn pread pwrite register_at_fork sched_getaffinity setsid sysconf uname
        wait4 waitid
    """,
    select: "POLLIN POLLOUT epoll poll",
    signal: """
        SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGRTMIN SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH SIG_BLOCK
        pidfd_send_signal pthread_sigmask sigpending
    """,
    socket: "AF_UNIX MSG_NOSIGNAL SCM_RIGHTS SO_SNDTIMEO socketpair",
}


def refuse_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def import_here(name: str, globals: Any = None, *others: Any, **named: Any) -> Any:
    if name in MODULES and globals and str(globals.get("__name__")).startswith("blueque"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_anywhere(name, globals, *others, **named)


import_anywhere, builtins.__import__ = builtins.__import__, import_here
for module, names in NAMES.items():
    for name in names.split():
        delattr(module, name)
sys.addaudithook(refuse_proc)
sys.platform = "darwin"
