"""A socket to Redis with TLS.

The layer of TLS keeps bytes of its own, so a descriptor tells less than that of a plain socket:

- It may be readable when no byte of Redis is there: behind the handshake of TLS 1.3, the server sends
  session tickets. A blocking read would wait for the whole timeout.
- It may be unreadable when bytes are there: a read takes one record of at most 16 KiB, and the rest
  of what was received stays in the layer. So `pending()` is asked before the descriptor.
- A write may have to wait until something can be read, and a read until something can be written.

So the socket does not block, and each read and write that could not go on polls for what it needs.
"""

from __future__ import annotations

import os
import select
import ssl
import time
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from blueque.connection.address import REPLY_TIMEOUT, Address, TlsOptions
from blueque.connection.plain import SocketConnection, packed
from blueque.connection.redis import Command, bare
from blueque.errors import InvalidInput, RedisRefused

_RECORD = 65536  # a read returns one record of TLS, of 16 KiB at most
_MINIMUM = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsConnection(SocketConnection):
    """A TCP socket with TLS."""

    _socket: ssl.SSLSocket

    def _open(self, address: Address) -> ssl.SSLSocket:
        if address.tls is None:
            raise TypeError(f"{address.shown} is an address without TLS")
        self._server = address.place
        context = _context_of(address.tls)
        plain = address.connect()
        try:
            # Until the handshake is done, the module waits by itself.
            plain.settimeout(address.connect_timeout)
            wrapped = context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLError as error:
            raise _refused(address.place, error) from bare(error)
        finally:
            plain.close()  # after wrap_socket the descriptor belongs to the wrapper
        wrapped.setblocking(False)
        self._write_poll = select.poll()
        self._write_poll.register(wrapped, select.POLLOUT)
        return wrapped

    def send(self, commands: Iterable[Command]) -> None:
        left = memoryview(packed(commands))
        deadline = time.monotonic() + REPLY_TIMEOUT
        while left:
            try:
                left = left[self._socket.send(left) :]
            except ssl.SSLWantWriteError:
                self._poll_until(deadline, self._write_poll)
            except ssl.SSLWantReadError:
                self._poll_until(deadline, self._poll)
            except OSError as error:
                self._lost(self._alert() or error)

    def _alert(self) -> OSError | None:
        """Return why the server has closed the connection, if it has said so."""
        try:
            self._socket.recv(_RECORD)
        except OSError as error:
            return error
        return None

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._has_data():
            try:
                self._data = self._socket.recv(_RECORD)
            except ssl.SSLWantReadError:
                if not self._poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                    return False
            except OSError:
                return True  # whoever reads then meets the error
            else:
                return True  # also when the server has closed the connection: the same
        return True

    def _has_data(self) -> bool:
        return super()._has_data() or self._socket.pending() > 0

    def _receive_some(self) -> bytes:
        deadline = time.monotonic() + REPLY_TIMEOUT
        while True:
            try:
                data = self._data or self._socket.recv(_RECORD)
            except ssl.SSLWantReadError:
                # `has_answer` may leave in `_data` what it has found
                if self.has_answer is None:
                    self._poll_until(deadline, self._poll)
                elif not self.has_answer(self):
                    self._lost(OSError("gave up waiting for an answer"))
            except ssl.SSLWantWriteError:
                self._poll_until(deadline, self._write_poll)
            except OSError as error:
                self._lost(error)
            else:
                if not data:
                    self._lost(OSError("the server closed the connection"))
                return data

    def _poll_until(self, deadline: float, poll: select.poll) -> None:
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            self._lost(OSError("timed out"))

    def _lost(self, error: OSError) -> NoReturn:
        # With TLS 1.3 the client learns behind the handshake that its certificate is refused.
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            self.close()
            raise _refused(self._server, error) from bare(error)
        super()._lost(error)


class _Made(NamedTuple):
    """A context, and the files of its certificates by the times of their last change."""

    context: ssl.SSLContext
    changed: tuple[int, ...]


_contexts: dict[TlsOptions, _Made] = {}


def _context_of(options: TlsOptions) -> ssl.SSLContext:
    """Return the context for these options. It is made anew when one of the files has changed:
    certificates are renewed while a listener runs.

    Raises InvalidInput if a file is not there, or is not what it should be.
    """
    files = [path for path in (options.ca_certs, options.certfile, options.keyfile) if path]
    changed = tuple(_changed_at(path) for path in files)
    made = _contexts.get(options)
    if made is None or made.changed != changed:
        made = _contexts[options] = _Made(_new_context(options), changed)
    return made.context


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError as error:
        raise InvalidInput(f"the certificate {path} cannot be read: {error.strerror}") from None


def _new_context(options: TlsOptions) -> ssl.SSLContext:
    path = options.ca_certs
    try:
        context = ssl.create_default_context(cafile=path)
        context.minimum_version = _MINIMUM[options.min_version]
        context.check_hostname = options.check_hostname
        if not options.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        path = options.certfile
        if path is not None:
            context.load_cert_chain(path, options.keyfile, options.password or "")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"the certificate {path} cannot be used: {reason}") from None
    return context


def _refused(place: str, error: ssl.SSLError) -> RedisRefused:
    """Return in one sentence why the two sides do not trust each other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not valid: {error.verify_message.rstrip('.')}"
    elif "ALERT" in (error.reason or ""):
        why = f"it refuses our certificate: {(error.reason or '').lower().replace('_', ' ')}"
    else:
        why = f"it does not speak TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return RedisRefused(f"TLS no connection to {place}: {why}")
