"""Redaction: parameters of a task, fit to be shown to whoever may look over a shoulder: without
what looks like a secret.

Nothing in Redis changes, and the task gets what was enqueued. docs/security.md, "Secrets", says
where this applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "[hidden]"
Hide = Callable[[Any], Any]

# Words in names, which apiKey, API_KEY and api-key have in common.
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
# What a word ends with that is written together, as in PGPASSWORD and clientsecret.
_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
_PAIRS = {(of, key) for of in ("api", "access", "private") for key in ("key", "keys")}
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
_IN_URL = re.compile(r"""(://[^\s/:@"'<>]*):[^\s/"'<>]+@""")


def hider(patterns: Sequence[str] = ()) -> Hide:
    """Return what replaces the secrets in a value, or in text that is JSON, by HIDDEN; all of one
    that is nested too deeply.

    patterns: of more names whose values are secret, as `*_url`; upper and lower case are the same.
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
        # A number is one only under a name that ends so: a token_count is none.
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
    """Hide nothing."""
    return value


def _in_text(text: str, hide: Hide) -> str:
    """Return the text with the secrets hidden that stand in it as JSON, or in a URL; the same text
    if there are none.
    """
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
