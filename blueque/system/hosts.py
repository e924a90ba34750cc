"""The name of this machine in the ids of its listeners."""

from __future__ import annotations

import functools
import os
import re
import time
from typing import TYPE_CHECKING

from blueque.errors import InvalidInput

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

VARIABLE = "BLUEQUE_HOST"
SLOW = 2.0  # seconds after which we say that the name server was slow
_LONGEST = 253  # characters of a name in the DNS
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NODE = re.compile(r".*_[0-9]+")  # reads as the id of a listener
_LOOPBACK = re.compile(r"(?:ip6-)?(?:localhost|loopback)[46]?(?:\..*)?", re.IGNORECASE)
_REVERSE = (".in-addr.arpa", ".ip6.arpa")  # an address, as the DNS writes it


def host_name() -> str:
    """Return the name of this host: BLUEQUE_HOST, or else `default_name()`. Raises InvalidInput."""
    return chosen_name() or default_name()


def name_for_people() -> str:
    """Return BLUEQUE_HOST, or else the kernel's name of this host. Raises InvalidInput.

    A name server that does not answer would block the caller for 20 seconds.
    """
    import socket  # here: a task process does not need it

    return chosen_name() or socket.gethostname()


def chosen_name() -> str | None:
    """Return BLUEQUE_HOST; None if it is not set. Raises InvalidInput."""
    chosen = os.environ.get(VARIABLE)
    try:
        return require_host_name(chosen) if chosen else None
    except InvalidInput as error:
        raise InvalidInput(f"{VARIABLE}: {error}") from error


def default_name() -> str:
    """Return `getfqdn()`, as 1.0.0 does; `gethostname()` if that is `localhost` or an address."""
    import socket  # here: a task process does not need it

    return _full_name() if names_one_machine(_full_name()) else socket.gethostname()


def require_host_name(name: str) -> str:
    """Return the name. Raises InvalidInput if a node id cannot have it."""
    if len(name) > _LONGEST:
        raise InvalidInput(f"a host name has at most {_LONGEST} characters, this one {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a host name: use letters, digits, '.', '-' and '_', with a letter or digit at both ends"
        )
    if _NODE.fullmatch(name):
        raise InvalidInput(
            f"{name!r} reads as the id of a listener: a host name does not end with '_' and digits"
        )
    return name


def names_one_machine(name: str) -> bool:
    """Return whether a name can belong to one machine only: not `localhost`, nor an address."""
    return bool(name) and not (
        _LOOPBACK.fullmatch(name) or name.endswith(_REVERSE) or _is_address(name)
    )


def is_this_machine(host: str) -> bool:
    """Return whether a listener of 1.0.0 whose node id has this host runs on this machine.

    Many machines may be `localhost`; this is the one if BLUEQUE_HOST says so.
    """
    return host == _full_name() and (names_one_machine(host) or host == host_name())


def has_been_this_machine(host: str) -> bool:
    """Return whether listeners of this machine may have registered under this host name earlier."""
    import socket  # here: a task process does not need it

    return host in (chosen_name(), socket.gethostname()) or host == _full_name()


@functools.cache
def _full_name() -> str:
    # here: a task process does not need them
    import logging
    import socket

    began = time.monotonic()
    name = socket.getfqdn()  # may ask the DNS
    if (seconds := time.monotonic() - began) > SLOW:
        logging.getLogger("blueque").warning(
            "the name server took %.0f s for the name of this host; set %s to do without it",
            seconds,
            VARIABLE,
        )
    return name


def _is_address(name: str) -> bool:
    import socket  # here: a task process does not need it

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def network_of(text: str) -> IPv4Network | IPv6Network:
    """Return an address or a network. Raises InvalidInput, also if it includes every address."""
    import ipaddress  # here: a task process does not need it

    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not an address or a network: {error}") from error
    if network.prefixlen == 0:
        raise InvalidInput(f"{text} is every address: name those of your proxies")
    return network
