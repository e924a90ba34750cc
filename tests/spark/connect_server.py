"""A server of Spark Connect with the newest Spark, for clients of Spark 3.5, whose package has none.

`python -m spark.connect_server` in tests/ prints its port when it is there, and ends with its input.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import blueque.spark as bs
from spark.conftest import FAST
from spark.oldest import NEWEST


def start() -> str:
    """Start one, which ends with this process, and return its address."""
    environ = {name: text for name, text in os.environ.items() if "SPARK" not in name}
    server = subprocess.Popen(
        [os.environ[NEWEST], "-m", "spark.connect_server"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    assert port, f"the server of Connect has ended with exit code {server.wait()}"
    _servers.append(server)
    return f"sc://127.0.0.1:{port}"


_servers: list[subprocess.Popen[str]] = []  # each would be killed when it is collected


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        **FAST,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(port),
    }
    spark = bs.session("connect", "local[12]", **options)
    print(port, flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
