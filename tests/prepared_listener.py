"""The program of `prepared.Prepared`. Each of its forks goes on as the program that blueque-listener
becomes by exec.

It imports nothing that such a program does not.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from blueque.node import main as program
from blueque.system import unix_sockets
from blueque.task_process.import_ahead import import_for_daemon

MOST = 200_000  # bytes of a message
ROOM = 8000  # bytes for the arguments of a listener, and for its environment
_AREAS = {"arguments": (45, 46), "environment": (47, 48)}  # where proc(5) says where they are


def serve(end: int) -> None:
    """Do what the tests ask for until they have gone. Return in each fork."""
    import_for_daemon("redis://localhost")
    listeners: dict[int, int] = {}  # by the process that has asked for one
    while True:
        message, files = unix_sockets.receive(end, MOST, 4)
        if not message:
            os._exit(0)
        what, pid, *rest = json.loads(message)
        if what == "become":
            listeners[pid] = os.fork()
            if listeners[pid] == 0:
                os.close(end)
                return _become(files, *rest)
            for file in files:
                os.close(file)
        elif what == "listener of":
            unix_sockets.send(end, json.dumps(listeners.pop(pid, None)).encode())
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            unix_sockets.send(end, json.dumps(code).encode())


def _become(
    files: Sequence[int], directory: str, arguments: list[str], environ: dict[str, str]
) -> None:
    *streams, choices = files
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    os.setpgid(0, 0)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ, **{program.CHOICES: str(choices)})
    time.tzset()
    sys.orig_argv = arguments
    sys.argv = [program.__file__, *arguments[arguments.index("-m") + 2 :]]
    _show("arguments", arguments)
    _show("environment", [f"{name}={text}" for name, text in environ.items()])


def _show(area: str, texts: Sequence[str]) -> None:
    """Have /proc show what it would show after an exec."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    begin, end = (int(fields[number]) for number in _AREAS[area])
    content = b"\0".join(map(os.fsencode, texts)) + b"\0"
    assert len(content) <= end - begin, f"there is no room for the {area}"
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    os.pwrite(memory, content.ljust(end - begin, b"\0"), begin)
    os.close(memory)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
    try:
        sys.exit(program.main())
    except KeyboardInterrupt:
        sys.exit(130)
