"""Tasks as a DataFrame: `read`, and `spark.read.format("blueque")` (datasource.py).

The ids are those of one instant. Each partition reads its slice of the tasks in a worker, straight
from Redis, as record batches of Arrow.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from blueque.client import Client
from blueque.errors import InvalidInput, InvalidType
from blueque.model import units
from blueque.model.columns import COLUMNS, require_fields
from blueque.model.encoding import require_whole
from blueque.model.snapshot import Slice, require_keep, require_queues, require_statuses
from blueque.model.states import STATUSES
from blueque.spark.executors import read_each
from blueque.spark.parsing import parsed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("blueque")

Missing = Literal["drop", "null"]

KEEP = 3600  # seconds
MAX_PARTITIONS = 10_000
OF_STREAMS = ("startingoffsets", "failondataloss")  # options of finished_stream.py only
PATIENCE = 30.0  # seconds; a worker that gives up loses all that it has read
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
}


def read(
    spark: SparkSession,
    queue: str | Iterable[str],
    status: str | Iterable[str] = STATUSES,
    fields: Sequence[str] | None = None,
    partitions: int | None = None,
    missing: Missing = "drop",
    url: str | None = None,
    keep: float = KEEP,
    schema: StructType | str | None = None,
) -> DataFrame:
    """Return the tasks of one or more queues as a DataFrame, one row for each.

    The set of tasks is that of this call. Each query reads their fields anew, so `status` may have
    changed; `listed_as` is the status at the call. Warns of a queue that Redis does not know,
    because its name may be mistyped.
    status: one or more statuses. Default: all.
    fields: names of columns, see blueque.model.columns; None: all but `other`. Few are faster.
    partitions: about how many; None: one for each 50,000 tasks of a status.
    missing: of a deleted task: "drop": no row. "null": a row with its id only.
    url: as for `blueque.Client`, and for the workers too, wherever they run.
    keep: how many seconds Redis keeps the ids. Default: an hour. A later query fails with
        SnapshotGone, in Spark's words: call `read` again.
    schema: of JSON results: the column `result` has this type, and is null where it does not fit.
    Raises InvalidInput, InvalidType, RedisAway.
    """
    wish = _wish(url, queue, status, fields, partitions, missing, keep)
    frame = read_each(spark, partial(rows, wish), freeze(wish), schema_of(wish.fields))
    return parsed(frame, schema)


def freeze(wish: Wish) -> list[Slice]:
    """Take a snapshot of the tasks and return its slices. Warn of unknown queues."""
    with closing(Client(wish.url)) as client:
        known = {*client.get_inspector().queues()}
        snapshot = client.freeze(wish.queues, wish.statuses, wish.keep)
    unknown = [queue for queue in wish.queues if queue not in known]
    if unknown:
        names = ", ".join(map(repr, unknown))
        log.warning(
            "Redis has no queue %s: its table has no rows until tasks are enqueued there", names
        )
    return list(snapshot.slices(count=wish.partitions))


def rows(wish: Wish, piece: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the tasks of one slice. Raises SnapshotGone when its ids are no longer in Redis."""
    with closing(Client(wish.url, patience=PATIENCE)) as client:
        yield from client.read(piece, wish.fields, wish.missing)


def schema_of(fields: Iterable[str]) -> StructType:
    return StructType([StructField(name, TYPES[COLUMNS[name].kind]) for name in fields])


@dataclass(frozen=True)
class Wish:
    """The checked options of a read."""

    url: str
    queues: tuple[str, ...]
    statuses: tuple[str, ...]
    fields: tuple[str, ...]
    partitions: int | None
    missing: Missing
    keep: int

    def of_schema(self, schema: StructType) -> Wish:
        """Return the wish for the columns of a user's own schema. Raises InvalidInput."""
        wanted = [(field.name, field.dataType) for field in schema.fields]
        fields = require_fields([name for name, _ in wanted])
        for (name, type_), known in zip(wanted, schema_of(fields).fields, strict=True):
            if type_ != known.dataType:
                raise InvalidInput(
                    f"the column {name!r} is {known.dataType.simpleString()}, not {type_.simpleString()}"
                )
        return replace(self, fields=fields)


def parse(options: Mapping[str, str]) -> Wish:
    """Return the checked options. Raises InvalidInput if one is unknown, missing or malformed."""
    known = ("url", "queue", "status", "fields", "partitions", "missing", "keep")
    given = {name.lower(): text for name, text in options.items()}
    for name in given:
        if name not in known:
            raise InvalidInput(
                f"there is no option {name!r} for reading; there are {', '.join(known)}"
            )
    if not given.get("queue"):
        raise InvalidInput(
            "the option 'queue' is needed: the name of a queue, or a JSON list of names"
        )
    texts = {name: given[name] for name in ("partitions", "keep") if name in given}
    numbers = {name: _number(text, name) for name, text in texts.items()}
    return _wish(
        given.get("url") or None,
        _names(given["queue"]),
        _words(given["status"]) if "status" in given else STATUSES,
        _words(given["fields"]) if "fields" in given else None,
        numbers.get("partitions"),
        given.get("missing", "drop"),
        numbers.get("keep", KEEP),
    )


def _wish(
    url: str | None,
    queue: str | Iterable[str],
    status: str | Iterable[str],
    fields: Sequence[str] | None,
    partitions: int | None,
    missing: str,
    keep: float,
) -> Wish:
    """Return these options, checked. Raises InvalidInput, InvalidType."""
    return Wish(
        url=units.redis_url()[0] if url is None else url,
        queues=tuple(require_queues(queue)),
        statuses=tuple(require_statuses(status)),
        fields=require_fields(fields),
        partitions=require_partitions(partitions),
        missing=_require_missing(missing),
        keep=require_keep(keep),
    )


def require_partitions(number: int | None) -> int | None:
    """Return about how many partitions a frame is to have. Raises InvalidInput, InvalidType."""
    if number is None:
        return None
    return require_whole(number, "partitions", 1, MAX_PARTITIONS)


def _require_missing(missing: Any) -> Missing:
    if missing == "drop" or missing == "null":
        return missing
    raise InvalidInput(f'missing is "drop" or "null", not {missing!r}')


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _names(text: str) -> list[str]:
    """Return names of queues: a JSON list, or one name, which may have any characters."""
    if not text.startswith("["):
        return [text]
    try:
        names = json.loads(text)
    except ValueError:
        return [text]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidType(
            f"the option 'queue' is the name of a queue, or a JSON list of names, not {text!r}"
        )
    return names


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{what} is a whole number, not {text!r}") from None
