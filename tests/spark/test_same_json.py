"""The same row of Parquet makes the same parameters, byte for byte, whichever way it goes."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F

import blueque
import blueque.spark as bs
from blueque.model import keys

# 17 types, with what Java, Python and Arrow write in different ways.
TYPES = {
    "byte": "cast(-1 as byte)",
    "short": "cast(300 as short)",
    "int": "7",
    "long": "9223372036854775807",
    "float": "cast(0.1 as float)",
    "double": "1e10D",
    "nan": "cast('NaN' as double)",
    "decimal": "cast('0.00000010' as decimal(38,18))",
    "boolean": "true",
    "string": "'é\"\\\\ \\n\\u2028\\t\\u001f'",
    "date": "date'2024-01-02'",
    "timestamp": "timestamp'2024-01-02 03:04:05.678901+02:00'",
    "local": "timestamp_ntz'2024-01-02 03:04:05'",
    "binary": "X'00ff'",
    "array": "array(timestamp'2024-01-02 03:04:05Z', null)",
    "map": "map(1, 'a', 2, null)",
    "struct": "named_struct('x', cast(null as int), 'y', array(named_struct('z', date'1970-01-01')))",
}
ROW = """{"byte":-1,"short":300,"int":7,"long":9223372036854775807,"float":0.1,"double":10000000000.0,"nan":"NaN",\
"decimal":1.00000000000E-7,"boolean":true,"string":"é\\"\\\\ \\n\u2028\\t\\u001f","date":"2024-01-02",\
"timestamp":"2024-01-02T01:04:05.678901Z","local":"2024-01-02T03:04:05.000000","binary":"AP8=",\
"array":["2024-01-02T03:04:05.000000Z",null],"map":{"1":"a","2":null},"struct":{"x":null,"y":[{"z":"1970-01-01"}]}}"""


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS"])
def test_a_row_makes_the_same_parameters_whichever_way_it_goes(
    spark, compiled, sources, client, cli, url, tmp_path, times
):
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    path, nulls = str(tmp_path / "rows"), ", ".join(f"null as `{name}`" for name in TYPES)
    frame = spark.sql("select " + ", ".join(f"{made} as `{name}`" for name, made in TYPES.items()))
    frame.union(spark.sql(f"select {nulls}")).coalesce(1).write.parquet(path)
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    rows = spark.read.parquet(path)

    blueque.feed(path, "fed", name="f", client=client)
    rows = rows.withColumn("key", F.coalesce("string", F.lit("none")))
    said = {"url": url, "key": "key", "params": ",".join(TYPES)}
    bs.enqueue(rows, "enqueued", url=url, key="key", params=[*TYPES])
    rows.write.format("blueque").options(queue="written", **said).mode("append").save()

    fed, written, enqueued = (parameters(cli, queue) for queue in ("fed", "written", "enqueued"))
    assert (
        fed == written == enqueued == [ROW, json.dumps(dict.fromkeys(TYPES), separators=(",", ":"))]
    )


def parameters(cli, queue):
    """Return the parameters of the tasks of a queue, in their order, as they are in Redis."""
    ids = cli.lrange(keys.pending(queue), 0, -1)[::-1]
    return [cli.hget(keys.task(task), "parameters") for task in ids]
