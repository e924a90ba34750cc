"""An imitation of S3 for tests: moto, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from running import until

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def serving() -> Iterator[str]:
    """Yield the address of a server with the bucket `bucket`. Needs CREDENTIALS."""
    from pyarrow import fs  # here: other tests need none

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"127.0.0.1:{port}"

    def is_there() -> bool:
        try:
            files.create_dir("bucket")
        except OSError:
            return False
        return True

    try:
        files = fs.S3FileSystem(
            endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        until(is_there)
        yield address
    finally:
        server.kill()
        server.wait()


def new_archive(address: str) -> str:
    """Return the URL of an archive that does not exist yet."""
    query = f"endpoint_override={address}&scheme=http&region=us-east-1"
    return f"s3://bucket/{os.urandom(4).hex()}/archive?{query}"
