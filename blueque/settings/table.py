"""Every table of blueque.toml, and every setting in it, declared once.

From a row come the option of a program, the environment variable, the check of the file, `blueque
config`, the example and docs/configuration.md. To add a setting, add a row and use its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from blueque.model import client_settings, units
from blueque.settings import values
from blueque.settings.kinds import DAYS, SIZE, TEXT, Kind, texts, whole, write_duration
from blueque.settings.of_programs import LISTENER, SCHEDULER, WEB
from blueque.settings.of_schedules import SCHEDULE
from blueque.settings.of_tasks import QUEUE, RETENTION
from blueque.settings.setting import Setting

TOP = (
    Setting(
        "redis_url",
        Kind(values.read_address, "URL"),
        "Address of Redis: redis://, rediss://, unix:// or redis+sentinel://. BLUEQUE_REDIS_URL wins over REDIS_URL.",
        default=units.DEFAULT_REDIS_URL,
        example="redis://db1:6379/0",
    ),
    Setting(
        "max_bytes",
        SIZE,
        "Maximum size of the parameters, and of the result, of a task.",
        default=units.DEFAULT_MAX_BYTES,
    ),
)
_REDIS = (
    Setting(
        "replicas",
        whole(0, client_settings.MAX_REPLICAS),
        "Number of replicas that must confirm a change.",
        default=0,
        example=1,
    ),
    Setting(
        "replicas_timeout",
        Kind(
            lambda value: client_settings.require_replicas_timeout(values.read_duration(value)),
            "DURATION",
            write=write_duration,
        ),
        "How long one try waits for the replicas. A call tries again until its patience ends.",
        default=client_settings.REPLICAS_TIMEOUT,
    ),
)
_DAYS_KEPT = Setting(
    "keep",
    DAYS,
    "How long to keep the numbers of a day: whole days.",
    default=client_settings.STATISTICS_KEEP,
)
_REDACT = Setting(
    "redact",
    texts("PATTERN"),
    "Hide parameters with these names, in addition to those that look like secrets.",
    default=(),
    example=["*_url", "iban"],
)
PAYLOADS = (
    Setting(
        "compress_from",
        SIZE,
        "Compress parameters, results and other data from this size up to 16 MiB, if that makes them smaller.",
        default_text="never",
        example="1KiB",
    ),
    Setting(
        "keys",
        TEXT._replace(metavar="FILE"),
        "Encrypt parameters, results and other data with the first key of this file.",
        default_text="no encryption",
        example="/etc/blueque/payload.keys",
    ),
    Setting(
        "queues",
        texts("PATTERN"),
        "Compress and encrypt only data of these queues.",
        default=(),
        default_text="all queues",
        example=["payroll", "hr.*"],
    ),
)
# The settings of each table of blueque.toml, in the order in which people read them.
TABLES: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        "": TOP,
        "redis": _REDIS,
        "listener": LISTENER,
        "queues": QUEUE,
        "retention": tuple(RETENTION.values()),
        "statistics": (_DAYS_KEPT,),
        "show": (_REDACT,),
        "payloads": PAYLOADS,
        "scheduler": SCHEDULER,
        "schedules": SCHEDULE,
        "aliases": (),
        "fanouts": (),
        "web": WEB,
    }
)
NAMED = ("queues", "schedules", "aliases", "fanouts")  # a name stands between table and key
# What the variable of a setting begins with; the options of `blueque web` have none.
VARIABLES = {
    "": "BLUEQUE_",
    "redis": "BLUEQUE_",
    "listener": "BLUEQUE_",
    "scheduler": "BLUEQUE_",
    "statistics": "BLUEQUE_STATISTICS_",
    "payloads": "BLUEQUE_PAYLOADS_",
}


def rows(table: str) -> dict[str, Setting]:
    """Return the settings of a table of blueque.toml, by key."""
    return {row.key: row for row in TABLES[table]}


def variable(table: str, key: str) -> str | None:
    """Return the environment variable of a setting; None: it has none."""
    prefix = VARIABLES.get(table)
    return None if prefix is None else prefix + key.upper()
