"""`blueque web`: the page that shows in a browser what the other commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import CONFIGURATION, REFUSED, Failure
from blueque.cli.options import Invocation, pass_invocation, shared_options
from blueque.connection.address import hide_password
from blueque.errors import InvalidInput

if TYPE_CHECKING:
    import socket

    from blueque.web.server import Address

EXTRA = ("starlette", "uvicorn", "jinja2")


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address, or unix:PATH; default 127.0.0.1 and the first free port from 8264 on.",
)
@click.option("--public", is_flag=True, help="Allow a HOST that other machines can reach.")
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="Name of this server.")
@click.option("--prefix", default="", metavar="/PATH", help="Path below which a proxy serves it.")
@click.option("--env", default="", metavar="NAME", help="Show this name; prod is marked red.")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="PATTERN", help="Only these queues."
)
@click.option("--read-only", is_flag=True, help="Nothing can be changed from the page.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@shared_options
@pass_invocation
def web(
    invocation: Invocation,
    listen: str | None,
    public: bool,
    names: tuple[str, ...],
    prefix: str,
    env: str,
    queues: tuple[str, ...],
    read_only: bool,
    opens: bool,
) -> None:
    """Serve a page that shows queues, tasks, hosts and logs, until Ctrl-C or SIGTERM.

    \b
    blueque web
    blueque web --listen unix:/run/user/1000/blueque.sock

    It prints an address with a token. Who has the token may see everything, and act; it is a new one each time, unless
    BLUEQUE_WEB_TOKEN or BLUEQUE_WEB_TOKEN_FILE has one. BLUEQUE_WEB_VIEWER_TOKEN is for those who may only look. The page
    needs pip install 'blueque[web]'. docs/guide/web.md says how to serve it for a team.
    """
    _require_extra()
    from blueque.system.log_format import log_to_stderr
    from blueque.web import server

    try:
        address = server.Address() if listen is None else server.address_of(listen)
        token, is_new = server.token_of()
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error
    if not address.is_private and not public:
        raise Failure(
            REFUSED,
            f"{listen} can be reached from other machines, and what it sends is not encrypted",
            "Behind a proxy with TLS, listen on 127.0.0.1 or unix:PATH. To allow it all the same: --public.",
        )
    listening = _bind(address, listen)
    log_to_stderr()
    shown = _shown(address, listening, prefix)
    url, origin = invocation.address()
    printing.talk(f"{hide_password(url)} ({origin}) is shown at")
    printing.talk(f"  {shown}/login#{token}" if is_new and not address.path else f"  {shown}/")
    if address.path and is_new:
        printing.talk(f"  the token is {token}")
    if opens and not address.path:
        click.launch(f"{shown}/login#{token}")
    _serve(invocation, token, listening, prefix, env, queues, names, read_only)


def missing() -> list[str]:
    """Return which packages the page lacks."""
    from importlib.util import find_spec

    return [name for name in EXTRA if find_spec(name) is None]


def _require_extra() -> None:
    absent = missing()
    if absent:
        sentence = f"the page needs {', '.join(absent)}"
        raise Failure(CONFIGURATION, sentence, "Install it: pip install 'blueque[web]'")


def _bind(address: Address, listen: str | None) -> socket.socket:
    from blueque.web import server

    try:
        return server.bind(address)
    except OSError as error:
        where = listen or "127.0.0.1"
        advice = "Is it in use? Choose another: --listen HOST:PORT"
        sentence = f"cannot listen on {where}: {error.strerror or error}"
        raise Failure(CONFIGURATION, sentence, advice) from error


def _shown(address: Address, listening: socket.socket, prefix: str) -> str:
    """Return the address for a browser."""
    if address.path:
        return f"unix:{address.path}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"http://{host}:{listening.getsockname()[1]}{prefix.rstrip('/')}"


def _serve(
    invocation: Invocation,
    token: str,
    listening: socket.socket,
    prefix: str,
    env: str,
    queues: tuple[str, ...],
    names: tuple[str, ...],
    read_only: bool,
) -> None:
    import os

    from blueque.web import create_app, server
    from blueque.web.access import Tokens
    from blueque.web.site import Site

    site = Site(
        address=hide_password(invocation.address()[0]),
        env=env,
        prefix=prefix.rstrip("/"),
        queues=queues,
        hosts=frozenset({"localhost", *names}),
        is_read_only=read_only,
        hide=invocation.hider(False),
        serve=invocation.serve,
    )
    tokens = {token: "operator"}
    viewer = os.environ.get("BLUEQUE_WEB_VIEWER_TOKEN")
    if viewer:
        tokens[viewer] = "viewer"
    client = invocation.client(patience=1.0)
    server.serve(create_app(client, authorize=Tokens(tokens), site=site), listening)
