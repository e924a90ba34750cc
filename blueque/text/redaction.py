"""Hide what looks like a secret in the parameters of a task that are shown.

Redis and the task keep the original. docs/security.md, "Secrets", says where this applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "[hidden]"
Hide = Callable[[Any], Any]

# Words of names: apiKey, API_KEY and api-key have the same words.
_WORDS = {
    "password",
    "passwords",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "apikey",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "cookies",
    "accesskey",
    "privatekey",
    "secretkey",
    "apikeys",
}
# Ends of words that are written together, as in PGPASSWORD and clientsecret.
_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
_PAIRS = {(of, key) for of in ("api", "access", "private") for key in ("key", "keys")}
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_IN_URL = re.compile(r"""(://[^\s/:@"'<>]*):[^\s/"'<>]+@""")


def hider(patterns: Sequence[str] = ()) -> Hide:
    """Return a function that replaces secrets in a value, or in JSON text, by HIDDEN.

    A value that is nested too deeply is hidden as a whole.
    patterns: of further names whose values are secret, as `*_url`; case does not matter.
    """
    wanted = [pattern.lower() for pattern in patterns]

    def is_secret(name: str, value: Any) -> bool:
        if value is None or isinstance(value, bool):
            return False
        if any(fnmatchcase(name.lower(), pattern) for pattern in wanted):
            return True
        words = [
            word
            for part in _BETWEEN_WORDS.split(name)
            if (word := part.lower().strip("0123456789"))
        ]
        found = [
            n
            for n, word in enumerate(words)
            if word in _WORDS or word.endswith(_ENDS) or tuple(words[n - 1 : n + 1]) in _PAIRS
        ]
        # A number is secret only if the word ends the name: token_count is not secret.
        return bool(found) and (found[-1] == len(words) - 1 or not isinstance(value, int | float))

    def hide(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: HIDDEN if is_secret(str(name), one) else hide(one)
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [hide(one) for one in value]
        return _in_text(value, hide) if isinstance(value, str) else value

    def hide_all(value: Any) -> Any:
        try:
            return hide(value)
        except RecursionError:
            return HIDDEN

    return hide_all


def reveal(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def _in_text(text: str, hide: Hide) -> str:
    """Hide the secrets of JSON text, or in a URL; return other text unchanged."""
    if text.lstrip().startswith(("{", "[", '"')):
        try:
            value = json.loads(text)
            hidden = hide(value)
            return text if hidden == value else json.dumps(hidden, ensure_ascii=False)
        except json.JSONDecodeError:  # it only looks like JSON
            pass
        except ValueError:  # a number in it is too long for Python
            return HIDDEN
    return _IN_URL.sub(rf"\1:{HIDDEN}@", text)
