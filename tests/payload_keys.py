"""Files of payload keys for tests."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from blueque import Client, Config
from blueque.model.payload_keys import PayloadKey

SECRET = "marker-4711"  # in each payload; Redis must not have it


def octets_of(id_: str) -> bytes:
    """Return the key that has this id in tests."""
    return hashlib.sha256(id_.encode()).digest()


def name_of(id_: str) -> str:
    """Return its name: id and fingerprint."""
    return PayloadKey.of(id_, octets_of(id_)).name


def write_keys(path: Path, *ids: str, mode: int = 0o600) -> Path:
    """Write a file of these keys, the first of which encrypts."""
    new = path.with_suffix(".new")
    lines = [f"{id_} {base64.b64encode(octets_of(id_)).decode()}\n" for id_ in ids]
    new.write_text("# keys\n\n" + "".join(lines))
    new.chmod(mode)
    new.rename(path)
    return path


def client_with(url: str, patience: float = 15.0, **payloads: object) -> Client:
    """Return a client with these settings of [payloads]."""
    said = {name: str(value) if name == "keys" else value for name, value in payloads.items()}
    return Client(url, patience=patience, config=Config(payloads=said))
