"""Runs one function on many things in the workers of Spark, and returns what it has returned for
each.

It is a Python UDF over one row for each thing: it needs neither RDDs, which Spark Connect lacks,
nor pandas.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.functions import udf

from blueque.errors import BluequeError, RedisAway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
U = TypeVar("U")


def run(spark: SparkSession, function: Callable[[T], U], things: Sequence[T]) -> list[U]:
    """Return function(thing) for each of the things, each called in its own Spark task.

    Spark may call it more than once for a thing, even at the same time: what it leaves behind needs
    a new name each time, and only the returned value counts. A BluequeError comes back as it was
    raised; Spark tries RedisAway again.
    function: can be pickled, as one at the top of a module that the workers have.
    """
    if not things:
        return []
    packed = [pickle.dumps((function, thing)) for thing in things]
    # Not deterministic: else Spark may call it again for a column that is used twice.
    work = udf(lambda number: _call(packed[number]), "binary", useArrow=False).asNondeterministic()
    rows = (
        spark.range(0, len(packed), 1, len(packed))
        .select("id", work("id").alias("answer"))
        .collect()
    )
    answers: dict[int, Any] = {row.id: pickle.loads(row.answer) for row in rows}
    for answer in answers.values():
        if isinstance(answer, BluequeError):
            raise answer
    return [answers[number] for number in range(len(packed))]


def _call(packed: bytes) -> bytes:
    function, thing = pickle.loads(packed)
    try:
        return pickle.dumps(function(thing))
    except RedisAway:
        raise
    except BluequeError as error:
        return pickle.dumps(error)
