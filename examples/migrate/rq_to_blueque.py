"""Move the jobs of an RQ queue to Blueque, also scheduled ones, each exactly once.

'video.encode(film, size)=encode' moves the jobs of video.encode to the queue encode, with the
parameters {"film": ..., "size": ...}: name the positional arguments. The program names each job
that it cannot move, and leaves it. You can end it at any time and run it again.
"""

import io
import json
import pickle
import re
import zlib
from collections import Counter

import click
import redis

import blueque

UNKNOWN = r"(success|failure|stopped)_callback_name|webhooks|repeats_left|rate_limit_key"
DEFAULT_TIMEOUT = 180  # RQ gives it to each job that has none of its own


class NotPlain(ValueError):
    """The data of a job hold an object that is not JSON."""


class Plain(pickle.Unpickler):
    """Reads a pickle of text, numbers, lists and dicts, and runs nothing."""

    def find_class(self, module, name):
        raise NotPlain(f"it holds a {module}.{name}, which is not JSON")


@click.command(help=__doc__)
@click.argument("functions", nargs=-1, required=True, metavar="'FUNCTION(ARGUMENTS)=QUEUE'...")
@click.option("--redis", "url", default="redis://localhost:6379/0", help="The Redis of RQ.")
@click.option("--queue", default="default", help="The queue of RQ.")
@click.option("--dry-run", is_flag=True, help="Change nothing.")
def main(functions, url, queue, dry_run):
    words = [re.fullmatch(r"([^(=]+)(?:\((.*)\))?=(.+)", function) for function in functions]
    if None in words:
        raise click.UsageError("Write each as 'video.encode(film, size)=encode'.")
    names = {word[1]: (word[3], re.findall(r"\w+", word[2] or "")) for word in words}
    rq, client = redis.Redis.from_url(url), blueque.Client()
    ours, report = f"to-blueque:{queue}", Counter()
    if rq.exists(f"rq:scheduler-lock:{queue}"):
        raise click.ClickException("RQ's scheduler runs: stop the workers with --with-scheduler.")
    if not rq.sismember("rq:queues", f"rq:queue:{queue}") and not rq.exists(ours):
        raise click.UsageError(f"RQ has no queue {queue} in this Redis.")
    for source, job, eta in jobs(rq, queue):
        try:
            task = translated(rq, job, eta, names, client)
        except ValueError as why:  # an InvalidInput of Blueque among them
            print(f"left {job}, {description(rq, job)}: {why}")
            continue
        if dry_run:
            report[f"to move to {task['queue']}"] += 1
        else:
            take(rq, source, job, ours, json.dumps(task))
    if not dry_run:
        finish(rq, client, ours, report)
    for job in map(bytes.decode, rq.zrange(f"rq:deferred:{queue}", 0, -1)):
        print(f"left {job}, {description(rq, job)}: it waits for other jobs")
    for line, number in report.items():
        print(number, line)


def jobs(rq, queue):
    """Yield the key that holds a job, its id, and when it is due."""
    line, later = f"rq:queue:{queue}", f"rq:scheduled:{queue}"
    yield from ((line, job.decode(), 0) for job in rq.lrange(line, 0, -1))
    yield from ((later, job.decode(), eta) for job, eta in rq.zrange(later, 0, -1, withscores=True))


def description(rq, job):
    """Return the call of a job, as RQ describes it."""
    return (rq.hget(f"rq:job:{job}", "description") or b"no description").decode()


def loaded(data):
    """Return what RQ has written as a pickle or as JSON."""
    return json.loads(data) if data[:1] in (b"[", b"{") else Plain(io.BytesIO(data)).load()


def contents(fields):
    """Return the name, instance, args, kwargs and meta of a job. Raises ValueError."""
    try:
        name, instance, args, kwargs = loaded(zlib.decompress(fields["data"]))
        meta = loaded(fields["meta"]) if fields.get("meta") else None
    except NotPlain:
        raise
    except Exception as error:  # pickle raises errors of many types
        raise ValueError("its data cannot be read") from error
    return name, instance, args, kwargs, meta


def translated(rq, job, eta, names, client):
    """Return the task that a job becomes. Raises ValueError if it cannot be moved."""
    fields = {field.decode(): value for field, value in rq.hgetall(f"rq:job:{job}").items()}
    if "data" not in fields:
        raise ValueError("it has expired")
    name, instance, args, kwargs, meta = contents(fields)
    if name not in names or instance is not None:
        raise ValueError(f"{name} is not on the command line, or is a method")
    queue, arguments = names[name]
    if unknown := [field for field in fields if re.fullmatch(UNKNOWN, field) and fields[field]]:
        raise ValueError(f"it has {', '.join(unknown)}")
    if rq.exists(f"rq:job:{job}:dependents"):
        raise ValueError("other jobs wait for it")
    if len(args) > len(arguments):
        raise ValueError("it has more positional arguments than are named")
    if client.get_task(job).status is not None:
        raise ValueError("Blueque has a task with this id already")
    parameters = dict(zip(arguments, args, strict=False)) | kwargs
    timeout, ttl = int(fields.get("timeout", 0)), rq.ttl(f"rq:job:{job}")
    limit = timeout if timeout > 0 and timeout != DEFAULT_TIMEOUT else None
    options = {"eta": eta, "time_limit": limit, "start_within": ttl if ttl > 0 else None}
    options |= {"tags": ["from-rq"], "keep": "30d", "context": meta}
    client.get_queue(queue).new_task(parameters, **options)  # refuses what enqueue would refuse
    known = "id" if re.fullmatch(r"[0-9A-Za-z][\w-]{0,199}", job, re.A) else "key"
    return {"queue": queue, "parameters": parameters, "options": options | {known: job}}


def take(rq, source, job, ours, text):
    """Move a job to our list, as a task, unless a worker is faster."""
    is_list = source.startswith("rq:queue:")

    def move(pipe):
        found = pipe.lpos(source, job) if is_list else pipe.zscore(source, job)
        pipe.multi()
        if found is not None:
            pipe.lrem(source, 1, job) if is_list else pipe.zrem(source, job)
            pipe.delete(f"rq:job:{job}").rpush(ours, text)

    return rq.transaction(move, source)


def finish(rq, client, ours, report):
    """Enqueue the tasks of our list, also those of an earlier run that was killed."""
    for text in rq.lrange(ours, 0, -1):
        task = json.loads(text)
        try:
            client.get_queue(task["queue"]).schedule(task["parameters"], **task["options"])
        except blueque.InvalidInput as error:
            report[f"left in {ours}: {error}"] += 1
        else:
            rq.lrem(ours, 1, text)
            report[f"moved to {task['queue']}"] += 1


try:
    main()
except (blueque.RedisAway, redis.ConnectionError, redis.TimeoutError) as error:
    raise SystemExit(f"{str(error).rstrip('.')}. Run this again when Redis answers.") from None
