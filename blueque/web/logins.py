"""Logins: by a token, by a password, or by a proxy that names the viewer; and the cookie that
remembers it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping

from blueque.web import access
from blueque.web.access import COOKIE, LASTS, Scope, Viewer
from blueque.web.passwords import Passwords
from blueque.web.proxies import NAMED
from blueque.web.tries import WrongTries


class Logins:
    """Identifies the viewer of a request. tokens: the role of each. passwords: of people.

    Servers with the same tokens and passwords accept each other's cookies. Others reject them.
    """

    def __init__(
        self,
        tokens: Mapping[str, str],
        passwords: Passwords | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = dict(tokens)
        self._passwords = passwords or Passwords({})
        self._clock = clock
        self.wrong = WrongTries(clock)
        self._key = _key_of(self._tokens, self._passwords)

    @property
    def has_tokens(self) -> bool:
        return bool(self._tokens)

    @property
    def has_passwords(self) -> bool:
        return bool(self._passwords.hashes)

    def __call__(self, scope: Scope) -> Viewer | None:
        """Return the viewer of a request: from a proxy, else a bearer token, else the cookie."""
        named: Viewer | None = scope.get(NAMED)
        if named is not None:
            return named
        token = access.bearer(scope)
        if token is None:
            kept = access.cookies_of(scope).get(COOKIE)
            return None if kept is None else self.viewer_in(kept)
        viewer = self.viewer_of(token)
        return None if viewer is None else viewer._replace(is_program=True)

    def viewer_of(self, token: str) -> Viewer | None:
        """Return the viewer with this token, if any. It takes equally long for each wrong one."""
        found = None
        for known, role in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = Viewer(role, role)
        return found

    def person_of(self, name: str, password: str) -> Viewer | None:
        """Return the viewer with this password, if any. It takes equally long for each wrong one."""
        return self._passwords.viewer_of(name, password)

    def cookie(self, viewer: Viewer) -> str:
        """Return the value of a signed cookie for a viewer, with its expiry."""
        content = json.dumps([viewer.name, viewer.role, int(self._clock() + LASTS)])
        text = base64.urlsafe_b64encode(content.encode()).decode()
        return f"{text}.{self._signature(text)}"

    def viewer_in(self, cookie: str) -> Viewer | None:
        """Return the viewer of a cookie; None: it is forged or expired."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(text).encode(), signature.encode()):
            return None
        name, role, end = json.loads(base64.urlsafe_b64decode(text))
        return Viewer(name, role) if end > self._clock() else None

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _key_of(tokens: Mapping[str, str], passwords: Passwords) -> bytes:
    """Return the key of the cookies. No viewer knows everything that it is made of."""
    parts = [token.encode() for token, role in tokens.items() if role == "operator"]
    parts += [known.salt + known.digest for known in passwords.hashes]
    if not parts:
        return os.urandom(32)
    parts += [token.encode() for token, role in tokens.items() if role != "operator"]
    # As slow as a password: a short token cannot be found by trying keys on a cookie.
    return hashlib.scrypt(
        b"\0".join(sorted(parts)), salt=b"blueque web cookie", n=2**14, r=8, p=1, dklen=32
    )
