"""People who log in with a name and a password, from a file that has a line for each.

A line is `name:role:hash`. `blueque web --hash NAME` prints one. Without a hash it only gives the
role of a person that a proxy names.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from blueque.errors import InvalidInput
from blueque.web.access import ROLES, Viewer, is_name

COST, BLOCK, TIMES = 2**15, 8, 3  # of scrypt: 32 MiB, about 0.2 s
MOST_MEMORY = 2**28  # bytes for one hash
_KIND = "scrypt"


class Hash(NamedTuple):
    """A password hash in a file."""

    cost: int
    block: int
    times: int
    salt: bytes
    digest: bytes

    def fits(self, password: str) -> bool:
        made = _scrypt(password, self.salt, self.cost, self.block, self.times)
        return hmac.compare_digest(made, self.digest)


class Person(NamedTuple):
    """A line of the file. hash: None: this person has no password."""

    role: str
    hash: Hash | None


class Passwords:
    """The people of a password file, by name."""

    def __init__(self, people: Mapping[str, Person]) -> None:
        self._people = dict(people)

    @property
    def hashes(self) -> list[Hash]:
        """The hashes of all people with a password."""
        return [person.hash for person in self._people.values() if person.hash is not None]

    def role_of(self, name: str) -> str | None:
        """Return the role of a person; None: the file does not have this name."""
        person = self._people.get(name)
        return None if person is None else person.role

    def viewer_of(self, name: str, password: str) -> Viewer | None:
        """Return the viewer, or None. An unknown name takes as long as a wrong password."""
        person = self._people.get(name)
        known = None if person is None else person.hash
        against = known or next(iter(self.hashes), None)
        if against is None or not against.fits(password) or known is None or person is None:
            return None
        return Viewer(name, person.role)


def load(path: str) -> Passwords:
    """Read a password file. Raises InvalidInput, which names the file and the line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from error
    people: dict[str, Person] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            name, person = _read(text)
            if name in people:
                raise InvalidInput(f"{name!r} is there twice")
        except InvalidInput as error:
            raise InvalidInput(f"{path}: line {number}: {error}") from error
        people[name] = person
    if not people:
        raise InvalidInput(f"{path}: it has no line; make one: blueque web --hash NAME")
    return Passwords(people)


def line_of(name: str, role: str, password: str) -> str:
    """Return a line of a password file. Raises InvalidInput."""
    if ":" in name or not is_name(name):
        raise InvalidInput(f"{name!r} is not a name: use 1 to 100 characters without a colon")
    if role not in ROLES:
        raise InvalidInput(f"the role is {' or '.join(ROLES)}, not {role!r}")
    if not password:
        raise InvalidInput("the password is empty")
    salt = os.urandom(16)
    digest = _scrypt(password, salt, COST, BLOCK, TIMES)
    numbers = f"{COST}${BLOCK}${TIMES}"
    return f"{name}:{role}:{_KIND}${numbers}${_as_text(salt)}${_as_text(digest)}"


def _read(line: str) -> tuple[str, Person]:
    name, _, rest = line.partition(":")
    role, colon, text = rest.partition(":")
    if not colon or not is_name(name):
        raise InvalidInput("it is not name:role:hash")
    if role not in ROLES:
        raise InvalidInput(f"the role is {' or '.join(ROLES)}, not {role!r}")
    return name, Person(role, _hash_of(text) if text else None)


def _hash_of(text: str) -> Hash:
    try:
        kind, cost, block, times, salt, digest = text.split("$")
        found = Hash(
            int(cost),
            int(block),
            int(times),
            base64.b64decode(salt, validate=True),
            base64.b64decode(digest, validate=True),
        )
    except (ValueError, binascii.Error) as error:
        raise InvalidInput("the hash was not made by blueque web --hash") from error
    is_cost = found.cost > 1 and found.cost & (found.cost - 1) == 0 and found.block > 0
    is_small = 128 * found.cost * found.block < MOST_MEMORY and 0 < found.times <= 16
    if kind != _KIND or not (is_cost and is_small) or len(found.digest) < 16:
        raise InvalidInput("the hash was not made by blueque web --hash")
    return found


def _scrypt(password: str, salt: bytes, cost: int, block: int, times: int) -> bytes:
    typed = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(
        typed, salt=salt, n=cost, r=block, p=times, maxmem=2 * MOST_MEMORY, dklen=32
    )


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
