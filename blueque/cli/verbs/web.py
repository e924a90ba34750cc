"""`blueque web`: the page that shows in a browser what the other commands print."""

from __future__ import annotations

import os
import secrets
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import CONFIGURATION, REFUSED, USAGE, Failure, cannot_listen
from blueque.cli.options import Invocation, text_options
from blueque.cli.setting_options import setting_options, sources_of
from blueque.cli.web_packages import missing
from blueque.connection.address import hide_password
from blueque.errors import InvalidInput

if TYPE_CHECKING:
    import socket

    from blueque.web.logins import Logins
    from blueque.web.passwords import Passwords
    from blueque.web.proxies import Proxies
    from blueque.web.server import Address


@click.command()
@setting_options("web")
@click.option(
    "--hash",
    "hashed",
    metavar="NAME[:ROLE]",
    help="Ask for a password, print a line for the password file, and end. ROLE: operator or viewer.",
)
@text_options
def web(invocation: Invocation, /, hashed: str | None, **_: Any) -> None:
    """Serve a page that shows queues, tasks, hosts and logs, until Ctrl-C or SIGTERM.

    \b
    blueque web
    blueque web --listen unix:/run/user/1000/blueque.sock
    blueque web --hash ada >> passwords
    blueque web --password-file passwords --host-name queue.example.com

    It prints an address with a new token. Anyone with the token can see and change everything. The page needs pip
    install '.[web]'. docs/guide/web.md says how to serve it for a team.
    """
    _require_extra()
    if hashed is not None:
        _print_line(hashed)
        return
    settings = sources_of(click.get_current_context(), invocation.config, "web").of("web")
    wish = SimpleNamespace(**{found.key: found.value for found in settings.all()})
    try:
        _run(invocation, wish)
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _require_extra() -> None:
    absent = missing()
    if absent:
        sentence = f"the page needs {', '.join(absent)}"
        raise Failure(
            CONFIGURATION, sentence, "Install it in the clone of Blueque: pip install '.[web]'"
        )


def _print_line(word: str) -> None:
    """Ask for a password, and print a line of a password file."""
    from blueque.web import passwords

    name, colon, role = word.partition(":")
    if sys.stdin.isatty():
        asked = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        asked = sys.stdin.readline().rstrip("\n")
    try:
        click.echo(passwords.line_of(name, role if colon else "operator", asked))
    except InvalidInput as error:
        raise Failure(USAGE, str(error)) from error


def _run(invocation: Invocation, wish: SimpleNamespace) -> None:
    """Serve the page. Raises InvalidInput."""
    from blueque.dev.session import TOKEN
    from blueque.system.log_format import log_to_stderr
    from blueque.web import passwords, server
    from blueque.web.logins import Logins

    address = server.Address() if wish.listen is None else server.address_of(wish.listen)
    people = passwords.load(wish.password_file) if wish.password_file else None
    proxies, tokens, drawn = _proxies(wish, address, people), server.tokens_of(), ""
    if not tokens and people is None and not wish.user_header:
        drawn = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    listening = _bind(wish, address, has_own_login=not drawn)
    log_to_stderr()
    shown = _shown(address, listening, wish.prefix)
    url, origin = invocation.address()
    printing.talk(f"The page of {hide_password(url)} ({origin}) is at")
    printing.talk(f"  {shown}/login#{drawn}" if drawn and not address.path else f"  {shown}/")
    if address.path and drawn:
        printing.talk(f"  the token is {drawn}")
    logins = Logins(tokens | ({drawn: "operator"} if drawn else {}), people)
    _serve(invocation, wish, logins, proxies, listening)


def _proxies(wish: SimpleNamespace, address: Address, people: Passwords | None) -> Proxies:
    """Return which proxies are believed. Raises InvalidInput."""
    from blueque.web.proxies import Proxies, networks_of

    networks = networks_of(wish.trust_proxy)
    if wish.user_header and not (networks or address.path):
        raise InvalidInput("--user-header needs --trust-proxy ADDRESS, or --listen unix:PATH")
    if wish.role_header and not wish.user_header:
        raise InvalidInput("--role-header needs --user-header NAME")
    return Proxies(
        networks,
        bool(address.path),
        wish.user_header or "",
        wish.role_header or "",
        people.role_of if people is not None else lambda name: None,
    )


def _require_care(wish: SimpleNamespace, address: Address, has_own_login: bool) -> None:
    """Refuse an address that other machines can reach, if nothing says who may come in."""
    if address.is_private or wish.public or has_own_login:
        return
    raise Failure(
        REFUSED,
        f"{wish.listen} can be reached from other machines, and its traffic is not encrypted",
        "Behind a proxy with TLS, listen on 127.0.0.1 or unix:PATH. Or require a login: --password-file FILE,"
        " --user-header NAME with --trust-proxy ADDRESS, or BLUEQUE_WEB_TOKEN_FILE. To allow it as it is: --public.",
    )


def _bind(wish: SimpleNamespace, address: Address, has_own_login: bool) -> socket.socket:
    """Return a socket that listens there. If none may or can, end the program."""
    from blueque.web import server

    try:
        _require_care(wish, address, has_own_login)  # looks up the name of the host
        return server.bind(address)
    except OSError as error:
        raise cannot_listen(wish.listen or "127.0.0.1", error) from error


def _shown(address: Address, listening: socket.socket, prefix: str) -> str:
    """Return the address for a browser."""
    if address.path:
        return f"unix:{address.path}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"http://{host}:{listening.getsockname()[1]}{prefix.rstrip('/')}"


def _serve(
    invocation: Invocation,
    wish: SimpleNamespace,
    logins: Logins,
    proxies: Proxies,
    listening: socket.socket,
) -> None:
    from blueque.web import create_app, server
    from blueque.web.site import Site

    url, origin = invocation.address()
    site = Site(
        address=hide_password(url),
        origin=origin,
        env=wish.env,
        prefix=wish.prefix.rstrip("/"),
        frame_ancestors=tuple(wish.frame_ancestors),
        queues=tuple(wish.queues),
        hosts=frozenset({"localhost", *(name.lower() for name in wish.host_names)}),
        is_read_only=wish.read_only,
        hide=invocation.hider(False),
        serve=invocation.serve,
        has_handler=invocation.config.has_handler,
        proxies=proxies,
    )
    client = invocation.client(patience=1.0)
    server.serve(create_app(client, authorize=logins, site=site), listening)
