"""`blueque metrics`: serve metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import AWAY, REFUSED, Failure, cannot_listen
from blueque.cli.options import Invocation, text_options
from blueque.errors import InvalidInput, NotInstalled

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from blueque.client import Client
    from blueque.metrics.server import Exporter


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9464",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on.",
)
@click.option("--public", is_flag=True, help="Allow a HOST that other machines can reach.")
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@text_options
def metrics(invocation: Invocation, listen: str, public: bool, once: bool) -> int:
    """Serve metrics for Prometheus at http://HOST:PORT/metrics, until Ctrl-C or SIGTERM.

    \b
    blueque metrics
    blueque metrics --once | grep blueque_tasks

    There is no password, so it listens on this machine only, unless you pass --public. It needs pip install
    '.[metrics]'. docs/monitoring.md explains the metrics.
    """
    try:
        from blueque.metrics.server import Exporter  # here: --help does not need it
    except ImportError as error:
        raise NotInstalled("serving metrics", "prometheus-client", "metrics") from error
    exporter = Exporter(collector(invocation.client()))
    if once:
        click.echo(exporter.scrape(), nl=False)
        return 0 if exporter.is_up else AWAY
    return _serve(exporter, listen, public, invocation)


def collector(
    client: Client, max_queues: int = 500, timeout: float = 4.0
) -> Callable[[], list[Metric]]:
    """Return a function that reads the metrics and closes its connection, as each request has its
    own thread.

    timeout: how many seconds it waits for an answer of Redis; Prometheus itself waits for 10.
    """
    from blueque.metrics.collect import collect  # here, as above

    client.connections.has_answer = lambda connection: connection.wait(timeout)

    def read() -> list[Metric]:
        try:
            return collect(client.connections, max_queues)
        finally:
            client.close()

    return read


def _serve(exporter: Exporter, listen: str, public: bool, invocation: Invocation) -> int:
    from blueque.connection.address import hide_password  # here, as above
    from blueque.metrics.server import open_server, serve
    from blueque.system.listen_address import is_loopback, parse_address
    from blueque.system.log_format import log_to_stderr

    try:
        host, port = parse_address(listen)
    except InvalidInput as error:
        raise click.UsageError(f"--listen: {error}") from error
    try:
        if not public and not is_loopback(host):
            raise Failure(
                REFUSED,
                f"{listen} can be reached from other machines, without a password",
                "To allow that: --public. Else: --listen 127.0.0.1:9464",
            )
        server = open_server(exporter, host, port)
    except OSError as error:
        raise cannot_listen(listen, error) from error
    log_to_stderr()
    url, origin = invocation.address()
    where = f"[{host}]" if ":" in host else host or "*"
    printing.talk(
        f"http://{where}:{server.server_address[1]}/metrics, from {hide_password(url)} ({origin})"
    )
    return serve(server)
