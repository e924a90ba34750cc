"""A socket to Redis with TLS.

The TLS layer buffers bytes, so the state of the descriptor says less than that of a plain socket:

- It may be readable without any byte of Redis: after the handshake of TLS 1.3, the server sends
  session tickets. A blocking read would wait for the whole timeout.
- It may be unreadable although there are bytes: a read takes one record of at most 16 KiB, and the
  rest stays in the layer. So `pending()` is checked before the descriptor.
- A write may have to wait until something can be read, and a read until something can be written.

So the socket does not block, and each read and write that could not go on polls for what it needs.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Iterable
from typing import NamedTuple, NoReturn, TypeGuard

from blueque.connection.address import REPLY_TIMEOUT, Address, TlsOptions
from blueque.connection.plain import SocketConnection, packed, reason_of
from blueque.connection.redis import Command, bare
from blueque.connection.waits import READABLE, WRITABLE, Poll
from blueque.errors import RedisRefused

log = logging.getLogger("blueque")

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
            plain.setblocking(False)
            wrapped = context.wrap_socket(
                plain, server_hostname=address.host, do_handshake_on_connect=False
            )
        finally:
            plain.close()  # after wrap_socket the descriptor belongs to the wrapper
        try:
            _shake_hands(wrapped, address)
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def send(self, commands: Iterable[Command]) -> None:
        left = memoryview(packed(commands))
        deadline = time.monotonic() + REPLY_TIMEOUT
        while left:
            try:
                left = left[self._socket.send(left) :]
                deadline = time.monotonic() + REPLY_TIMEOUT
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
            return error if _is_alert(error) else None
        return None

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._has_data():
            try:
                self._data = self._socket.recv(_RECORD)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as want:
                poll = self._poll if isinstance(want, ssl.SSLWantReadError) else self._write_poll
                if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                    return False
            except OSError as error:
                self._lost(error)  # a second read would not tell the reason
            else:
                return True  # also when the server has closed the connection: a read finds it out
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

    def _poll_until(self, deadline: float, poll: Poll) -> None:
        if not self._is_ready(poll, max(deadline - time.monotonic(), 0)):
            self._lost(OSError("timed out"))

    def _lost(self, error: OSError) -> NoReturn:
        # With TLS 1.3 the client learns behind the handshake that its certificate is refused. An
        # alert that comes later says nothing about a change that was sent before it.
        if _is_alert(error) and not self.is_proven:
            self.close()
            raise _refused(self._server, error) from bare(error)
        super()._lost(error)


def _shake_hands(wrapped: ssl.SSLSocket, address: Address) -> None:
    """Raises OSError, RedisRefused."""
    deadline = time.monotonic() + address.connect_timeout
    while True:
        try:
            return wrapped.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as want:
            event = READABLE if isinstance(want, ssl.SSLWantReadError) else WRITABLE
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            # a server that ends, or a proxy that has none behind it
            raise OSError("the server closed the connection") from None
        except ssl.SSLError as error:
            raise _refused(address.place, error) from bare(error)
        left = max(deadline - time.monotonic(), 0)
        if not address.waits.poll(wrapped, event).poll(left * 1000):
            raise OSError("the server does not answer the handshake of TLS")


class _Made(NamedTuple):
    """A context, when its certificate files last changed, and the errors logged for them."""

    context: ssl.SSLContext
    changed: tuple[int, ...]
    warned: str = ""


_contexts: dict[TlsOptions, _Made] = {}


def _context_of(options: TlsOptions) -> ssl.SSLContext:
    """Return the context for these options; create it again when one of the files has changed.

    Certificates are renewed while a listener runs. Until the new files fit each other, the old
    context is used.
    Raises RedisRefused if a file is missing or invalid.
    """
    files = [path for path in (options.ca_certs, options.certfile, options.keyfile) if path]
    made = _contexts.get(options)
    try:
        changed = tuple(_changed_at(path) for path in files)
        if made is None or made.changed != changed:
            made = _contexts[options] = _Made(_new_context(options), changed)
    except RedisRefused as error:
        if made is None:
            raise
        if str(error) != made.warned:
            log.warning("%s; going on with the one before", error)
            _contexts[options] = made._replace(warned=str(error))
    return made.context


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError) as error:  # ValueError: not a path
        reason = getattr(error, "strerror", None) or error
        raise RedisRefused(f"TLS the certificate {path!r} cannot be read: {reason}") from None


def _new_context(options: TlsOptions) -> ssl.SSLContext:
    what = repr(options.ca_certs)
    try:
        context = ssl.create_default_context(cafile=options.ca_certs)
        context.minimum_version = _MINIMUM[options.min_version]
        context.check_hostname = options.check_hostname
        if not options.cert_reqs:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if options.certfile is not None:
            key = f"with the key {options.keyfile!r}" if options.keyfile else "without ssl_keyfile"
            what = f"{options.certfile!r} {key}"
            context.load_cert_chain(options.certfile, options.keyfile, options.password or "")
    except (OSError, ValueError) as error:  # ValueError: the password is too long
        reason = _words(error) if isinstance(error, ssl.SSLError) else reason_of(error)
        raise RedisRefused(f"TLS the certificate {what} cannot be used: {reason}") from None
    return context


def _words(error: ssl.SSLError) -> str:
    """Return the reason without the names of OpenSSL around it."""
    if error.reason is None and "PEM lib" in str(error):
        return "a file does not hold what it should, or ssl_password is wrong"
    return (error.reason or str(error)).lower().replace("_", " ")


def _is_alert(error: OSError) -> TypeGuard[ssl.SSLError]:
    """Return whether the server has said why it closes the connection."""
    return isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")


def _refused(place: str, error: ssl.SSLError) -> RedisRefused:
    """Return in one sentence why the two sides do not trust each other."""
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not valid: {error.verify_message.rstrip('.')}"
    elif _is_alert(error):
        what = "our certificate" if "CERT" in reason or "CA" in reason.split("_") else "our TLS"
        why = f"it refuses {what}: {_words(error)}"
    else:
        why = f"it does not speak TLS: {_words(error)}"
    return RedisRefused(f"TLS no connection to {place}: {why}")
