"""Payloads: parameters, results, checkpoints, contexts and log lines on their way into Redis and out.

A `Sealer` compresses and encrypts them; `open_field` and the other functions undo that. No other
module does either. docs/protocol.md, "Encodings", describes the text.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from blueque.errors import ConfigRefused, InvalidInput, PayloadRefused
from blueque.model import payload_keys
from blueque.model.encoding import is_sealed
from blueque.model.lines import with_key
from blueque.model.log_line import Line
from blueque.model.new_task import NewTask
from blueque.model.payload_keys import PayloadKey
from blueque.model.units import parse_size

MOST = 16 << 20  # bytes of a text that is compressed: a stranger may have written what we expand

VARIABLE = "BLUEQUE_PAYLOADS_"


class Sealer(NamedTuple):
    """How payloads are stored.

    compress_from: the size in bytes from which they are compressed, if that makes them smaller;
        None: never.
    key: to encrypt them with; None: they are not encrypted.
    """

    compress_from: int | None
    key: PayloadKey | None

    def seal(
        self, text: str, encoding: str | None, owner: str, field: str
    ) -> tuple[str, str | None]:
        """Return a payload as it is stored, in ASCII, and its encoding; unchanged if that is shorter.

        owner: the id of its task, or `schedule NAME`. field: the name of the payload. It can only
            be opened as this field of this owner.
        """
        octets = text.encode("utf-8", "surrogateescape")
        sealed, coding = self.seal_octets(octets, encoding, owner, field)
        return (text if sealed is octets else sealed.decode()), coding

    def seal_octets(
        self, octets: bytes, encoding: str | None, owner: str, field: str
    ) -> tuple[bytes, str | None]:
        """Do the same with text in UTF-8."""
        words, sealed = ([] if encoding is None else [encoding]), octets
        if self.compress_from is not None and self.compress_from <= len(octets) <= MOST:
            packed = zlib.compress(octets)
            # without encryption, only compressed text becomes base64
            if len(packed) * (3 if self.key is not None else 4) < 3 * len(octets):
                words, sealed = ["zlib", *words], packed
        if self.key is not None:
            coding = ":".join(["aes", self.key.name, *words])
            sealed = self.key.encrypt(sealed, owner, field, coding)
        elif sealed is octets:
            return octets, encoding
        else:
            coding = ":".join(words)
        return base64.b64encode(sealed), coding

    def seal_whole(self, text: str, owner: str, field: str) -> str:
        """Return JSON text as it is stored where no other field names the encoding."""
        sealed, encoding = self.seal(text, "json", owner, field)
        return text if encoding == "json" else f"{encoding} {sealed}"

    def line(self, line: Line, task: str) -> Line:
        """Return a line of the log of a task as it is stored."""
        text, encoding = self.seal(line.text, None, task, "log")
        return line._replace(text=text, encoding=encoding)

    def new_task(self, new: NewTask, owner: str | None = None) -> NewTask:
        """Return a new task as it is stored. owner: None: the task itself."""
        owner, options = owner or new.task, dict(new.options)
        given = options.pop("parameters_encoding", None)
        text, encoding = self.seal(
            new.parameters, None if given is None else str(given), owner, "parameters"
        )
        if "context" in options:
            options["context"] = self.seal_whole(str(options["context"]), owner, "context")
        coded = {} if encoding is None else {"parameters_encoding": encoding}
        return new._replace(parameters=text, options=with_key({**coded, **options}, encoding))


class Payloads:
    """The settings in `[payloads]`.

    compress_from: see Sealer. keys: a file, see payload_keys.py.
    queues: patterns for names of queues; empty: all.
    """

    def __init__(
        self,
        compress_from: int | None = None,
        keys: str | None = None,
        queues: tuple[str, ...] = (),
    ) -> None:
        self.file = None if keys is None else payload_keys.file_at(keys)
        self._compress_from, self._queues = compress_from, queues

    @classmethod
    def of(cls, said: Mapping[str, Any], aliases: Mapping[str, str]) -> Payloads:
        """Return the settings of the environment, else of blueque.toml; see `payloads_of`.

        Raises InvalidInput.
        """
        size, keys, queues = (
            os.environ.get(f"{VARIABLE}{name}") for name in ("COMPRESS_FROM", "KEYS", "QUEUES")
        )
        try:
            from_size = parse_size(size) if size else said.get("compress_from")
        except InvalidInput as error:
            raise InvalidInput(f"{VARIABLE}COMPRESS_FROM: {error}") from error
        patterns = queues.split() if queues else said.get("queues", ())
        meant = [queue for alias, queue in aliases.items() if _fits(alias, patterns)]
        return cls(from_size, keys or said.get("keys"), (*patterns, *meant))

    def variables(self) -> dict[str, str]:
        """Return the environment variables that give a child process the same settings.

        Raises InvalidInput, NotInstalled: the keys cannot be used.
        """
        if self.file is not None:
            self.file.read()
            self.file.first().encrypt(b"")
        found = {}
        if self._compress_from is not None:
            found["COMPRESS_FROM"] = str(self._compress_from)
        if self.file is not None:
            found["KEYS"] = os.path.abspath(self.file.path)
        if self._queues:
            found["QUEUES"] = " ".join(self._queues)
        return {f"{VARIABLE}{name}": text for name, text in found.items()}

    def sealer(self, queue: str, encoding: str | None = None) -> Sealer | None:
        """Return how payloads of this queue are stored now; None: as they are.

        encoding: as for `encrypts`, for what a task leaves behind.
        Raises InvalidInput if the keys are missing or cannot be read.
        """
        is_encrypted = self.encrypts(queue, encoding)
        if is_encrypted and self.file is None:
            raise InvalidInput("the task is encrypted, and there are no payload keys here")
        if not (is_encrypted or self._covers(queue)):
            return None
        return Sealer(self._compress_from, None if self.file is None else self.file.first())

    def encrypts(self, queue: str, encoding: str | None) -> bool:
        """Return whether what a task of this queue leaves behind is encrypted. It always is for an
        encrypted task.

        encoding: of its parameters.
        """
        is_covered = self.file is not None and self._covers(queue)
        return is_covered or (encoding or "").startswith("aes:")

    def _covers(self, queue: str) -> bool:
        return not self._queues or _fits(queue, self._queues)

    def record(
        self, task: str, queue: str, encoding: str | None, record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the exit record of a task as it is stored, if it is not yet. Raises InvalidInput.

        encoding: of the parameters of the task.
        """
        found, coding = dict(record), record.get("result_encoding")
        if "result" in found and not is_sealed(coding):
            sealer = self.sealer(queue, encoding)
            if sealer is not None:
                sealed = sealer.seal(found["result"], coding, task, "result")
                found["result"], found["result_encoding"] = sealed
        if "then" in found:
            found["then"] = [self.unasked(NewTask(*new)) for new in found["then"]]
        return found

    def unasked(self, new: NewTask, schedule: str | None = None) -> NewTask:
        """Return a new task as it is stored, where no check for listeners of 1.0.0 was made.

        Only a task that needs a key is sure not to reach them. schedule: the name of the schedule
        to which it belongs.
        Raises InvalidInput.
        """
        sealer, encoding = self.sealer(new.queue), new.options.get("parameters_encoding")
        is_stored = sealer is None or sealer.key is None or is_sealed(str(encoding))
        owner = None if schedule is None else schedule_owner(schedule)
        return new if sealer is None or is_stored else sealer.new_task(new, owner)

    def offered(self) -> frozenset[str]:
        """Return the names of the keys for which a listener takes tasks.

        None while the file cannot be read, because task processes read it, too.
        """
        if self.file is None:
            return frozenset()
        try:
            return frozenset(self.file.read())
        except ConfigRefused:  # which is in the log once
            return frozenset()


def open_text(text: str, encoding: str, owner: str, field: str) -> tuple[str, str | None]:
    """Return a payload as it was given, and its encoding: `json` or None.

    Raises PayloadRefused: this process does not have the key, or the payload was changed.
    """
    words = encoding.split(":")
    key_name = words[1] if words[0] == "aes" and len(words) > 1 else None
    try:
        octets = base64.b64decode(text, validate=True)
        if key_name is not None:
            key = payload_keys.find(key_name)
            if key is None:
                raise PayloadRefused(owner, field, key_name)
            octets, words = key.decrypt(octets, owner, field, encoding), words[2:]
        if words[:1] == ["zlib"]:
            octets, words = _expand(octets), words[1:]
        if words not in ([], ["json"]):
            raise ValueError(encoding)
    except (ValueError, zlib.error) as error:
        raise PayloadRefused(owner, field, key_name, is_damaged=True) from error
    return octets.decode("utf-8", "surrogateescape"), words[0] if words else None


def open_whole(text: str, owner: str, field: str) -> str:
    """Return a text that names its own encoding, or is plain. Raises PayloadRefused."""
    if not is_sealed(text):
        return text
    encoding, _, sealed = text.partition(" ")
    return open_text(sealed, encoding, owner, field)[0]


def open_field(task: str, fields: Mapping[str, str], field: str) -> tuple[str | None, str | None]:
    """Return the text of parameters or a result, and `json` or None. Raises PayloadRefused."""
    text, encoding = fields.get(field), fields.get(f"{field}_encoding")
    if text is None or encoding is None or not is_sealed(encoding):
        return text, encoding
    return open_text(text, encoding, owner_of(task, fields, field), field)


def shown(task: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a task as `Task.for_people` has them."""
    found = dict(fields)
    for name in ("parameters", "result"):
        try:
            found |= _plain(task, fields, name)
        except PayloadRefused as error:
            found |= {name: error.shown, f"{name}_encoding": ""}
    if "context" in found:
        owner = owner_of(task, fields, "context")
        found["context"] = shown_whole(found["context"], owner, "context")
    return found


def shown_whole(text: str, owner: str, field: str) -> str:
    """Return a text that names its own encoding, or what people see instead."""
    try:
        return open_whole(text, owner, field)
    except PayloadRefused as error:
        return error.shown


def shown_line(task: str, text: str, encoding: str) -> str:
    """Return a line of a log, or what people see instead."""
    try:
        return open_text(text, encoding, task, "log")[0]
    except PayloadRefused as error:
        return error.shown


def opened(task: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a task with plain parameters and a plain context. Raises PayloadRefused."""
    found = {**fields, **_plain(task, fields, "parameters")}
    if "context" in found:
        owner = owner_of(task, fields, "context")
        found["context"] = open_whole(found["context"], owner, "context")
    return found


def _plain(task: str, fields: Mapping[str, str], field: str) -> dict[str, str]:
    """Return the plain fields of parameters or a result. Raises PayloadRefused."""
    text, encoding = open_field(task, fields, field)
    return {} if text is None else {field: text, f"{field}_encoding": encoding or ""}


def same_again(
    name: str, mine: tuple[str, str | None, Any], stored: tuple[str, str | None, Any]
) -> bool:
    """Return whether the template of a schedule is stored already. Each encryption gives another text.

    mine, stored: the text of the parameters, its encoding, and the context or None.
    """
    if mine[1] != stored[1]:
        return False
    owner = schedule_owner(name)
    texts = []
    try:
        for text, encoding, context in (mine, stored):
            plain = open_text(text, encoding or "", owner, "parameters")
            texts.append((plain, context and open_whole(str(context), owner, "context")))
    except PayloadRefused:
        return False
    return texts[0] == texts[1]


def owner_of(task: str, fields: Mapping[str, str], field: str) -> str:
    """Return the owner of a field of a task.

    All tasks of a schedule share parameters and context, because the scheduler has no keys.
    """
    of_schedule = "schedule" in fields and field in ("parameters", "context")
    return schedule_owner(fields["schedule"]) if of_schedule else task


def schedule_owner(name: str) -> str:
    """Return the owner of the template of a schedule. No task id has a space."""
    return f"schedule {name}"


def _fits(queue: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in patterns)


def _expand(octets: bytes) -> bytes:
    expander = zlib.decompressobj()
    found = expander.decompress(octets, MOST)
    if not expander.eof or expander.unused_data:
        raise ValueError("cut, followed by something, or too large")
    return found
