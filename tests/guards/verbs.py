"""Runs `blueque` in forks of a process that has imported all verbs: a page of the guide has a hundred
commands.

`python verbs.py SOCKET` serves; `python -S verbs.py SOCKET run ARGUMENTS` runs a command there, with
its own streams, environment and directory.
"""

import _socket
import array
import marshal
import os
import sys

MOST = 200_000  # bytes of a message


def run(path: str, arguments: list[str]) -> int:
    """Have the server run the command and return its exit code."""
    end = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    end.connect(path)
    message = marshal.dumps([arguments, dict(os.environ), os.getcwd()])
    streams = array.array("i", [0, 1, 2])
    end.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    return marshal.loads(end.recv(MOST))


def serve(path: str) -> None:
    import signal  # here: a command does without
    import socket
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent.parent))
    import forked

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen(8)
        print("ready", flush=True)
        while True:
            end, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                message, streams, _, _ = socket.recv_fds(end, MOST, 3)
                arguments, environ, directory = marshal.loads(message)
                pid = forked.start(arguments, environ, *streams, cwd=directory)
                for stream in streams:  # a reader sees the end when the command has ended
                    os.close(stream)
                end.send(marshal.dumps(forked.wait(pid, 120)))
                os._exit(0)
            end.close()


if __name__ == "__main__":
    if sys.argv[2:3] == ["run"]:
        sys.exit(run(sys.argv[1], sys.argv[3:]))
    serve(sys.argv[1])
