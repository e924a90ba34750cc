"""The keys of payloads: files with keys, and AES-256-GCM.

A file has lines `ID BASE64`, the BASE64 of 32 random bytes. The first key encrypts, all decrypt.
Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.errors import ConfigRefused, NotInstalled

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger("blueque")

VARIABLE = "BLUEQUE_PAYLOADS_KEYS"
NONCE = 12  # bytes; GCM has no other size that is as safe
_OCTETS = 32  # of AES-256
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_MOST = 1 << 20  # bytes of a file


class PayloadKey(NamedTuple):
    """A key. name: `[id].[fingerprint]`, so that two keys with one id are different keys."""

    name: str
    octets: bytes

    @classmethod
    def of(cls, id_: str, octets: bytes) -> PayloadKey:
        digest = hmac.new(octets, b"payload key", hashlib.sha256)
        return cls(f"{id_}.{digest.hexdigest()[:8]}", octets)

    def __repr__(self) -> str:  # an error or a log may show it
        return f"<PayloadKey {self.name}>"

    def encrypt(self, octets: bytes, *place: str) -> bytes:
        """Return nonce, ciphertext and tag. place: owner, field and encoding. Raises NotInstalled."""
        nonce = os.urandom(NONCE)
        return nonce + _cipher(self.octets).encrypt(nonce, octets, self._associated(place))

    def decrypt(self, octets: bytes, *place: str) -> bytes:
        """Return what was encrypted for this place. Raises ValueError for other text; NotInstalled."""
        cipher = _cipher(self.octets)
        from cryptography.exceptions import InvalidTag  # here: an extra

        try:
            return cipher.decrypt(octets[:NONCE], octets[NONCE:], self._associated(place))
        except InvalidTag:
            raise ValueError("it does not fit the key") from None

    def _associated(self, place: Sequence[str]) -> bytes:
        """Return the data that must be the same when a payload is decrypted."""
        return "\0".join(("blueque", *place)).encode("utf-8", "surrogateescape")


class KeyFile:
    """A file of keys, which is read again when it has changed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._keys: dict[str, PayloadKey] = {}
        self._seen: tuple[int, ...] | None = None
        self._refusal: ConfigRefused | None = None  # why the file cannot be read as it is now

    def first(self) -> PayloadKey:
        """Return the key that encrypts; while the file is being replaced, the previous one.

        Raises ConfigRefused.
        """
        return next(iter((self.known() or self.read()).values()))

    def read(self) -> dict[str, PayloadKey]:
        """Return the keys by name, in order. Raises ConfigRefused if the file cannot be read."""
        self._look()
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        return self._keys

    def known(self) -> dict[str, PayloadKey]:
        """Return the keys as last read; none if they never could be read."""
        self._look()
        return self._keys

    def _look(self) -> None:
        try:
            status = os.stat(self.path)
        except (OSError, ValueError) as error:  # ValueError: no path
            self._seen = None
            self._refuse(_unreadable(self.path, error))
            return
        seen = (status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys, self._refusal = _read(self.path), None
        except ConfigRefused as error:
            self._refuse(error)

    def _refuse(self, why: ConfigRefused) -> None:
        if self._keys and str(why) != str(self._refusal):
            log.warning("%s; a listener takes no encrypted tasks", why)
        self._refusal = why


_files: dict[str, KeyFile] = {}  # of this process, by path


def file_at(path: str) -> KeyFile:
    """Return the file with this path; a process has one object for each."""
    return _files.setdefault(path, KeyFile(path))


def find(name: str) -> PayloadKey | None:
    """Return the key with this name from the files of this process; None: none has it.

    The name determines the key, so it does not matter from which file it comes.
    """
    if path := os.environ.get(VARIABLE):
        file_at(path)
    return next((keys[name] for file in _files.values() if name in (keys := file.known())), None)


def _read(path: str) -> dict[str, PayloadKey]:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o077:
                reason = f"others can read it (mode {mode & 0o777:04o}): chmod 600 {path}"
                raise ConfigRefused(path, None, reason)
            lines = file.read(_MOST).decode("ascii", "replace").splitlines()
    except OSError as error:
        raise _unreadable(path, error) from error
    keys: dict[str, PayloadKey] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            key = _parse(line.split(), path, f"line {number}")
            if any(name.partition(".")[0] == key.name.partition(".")[0] for name in keys):
                reason = f"a second key has the id {key.name.partition('.')[0]!r}"
                raise ConfigRefused(path, f"line {number}", reason)
            keys[key.name] = key
    if not keys:
        raise ConfigRefused(path, None, "it has no key: write a line ID BASE64")
    return keys


def _parse(words: list[str], path: str, line: str) -> PayloadKey:
    """Return the key of a line. Its errors show no part of it."""
    if len(words) != 2 or not _ID.match(words[0]):
        reason = "it is not ID BASE64; an ID has 1 to 32 small letters, digits and hyphens"
        raise ConfigRefused(path, line, reason)
    try:
        octets = base64.b64decode(words[1], validate=True)
    except ValueError:
        octets = b""
    if len(octets) != _OCTETS:
        reason = (
            f"key {words[0]!r} is not the base64 of {_OCTETS} bytes: openssl rand -base64 {_OCTETS}"
        )
        raise ConfigRefused(path, line, reason)
    return PayloadKey.of(words[0], octets)


def _unreadable(path: str, error: OSError | ValueError) -> ConfigRefused:
    reason = getattr(error, "strerror", None) or error
    return ConfigRefused(path, None, f"the payload keys cannot be read: {reason}")


@functools.lru_cache(100)
def _cipher(octets: bytes) -> AESGCM:
    try:
        # here: an extra, 20 ms
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise NotInstalled("encrypting payloads", "cryptography", "crypto") from error
    return AESGCM(octets)
