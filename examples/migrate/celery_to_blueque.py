"""Move the tasks of a Celery queue on Redis to Blueque, each exactly once.

'video.encode(film, size)=encode' moves the tasks of video.encode to the queue encode, with the
parameters {"film": ..., "size": ...}: name the positional arguments. The program names each task
that it cannot move, and leaves it. You can end it at any time and run it again.
"""

import base64
import json
import re
from collections import Counter
from datetime import UTC, datetime

import click
import redis

import blueque


@click.command(help=__doc__)
@click.argument("tasks", nargs=-1, required=True, metavar="'TASK(ARGUMENTS)=QUEUE'...")
@click.option("--broker", default="redis://localhost:6379/0", help="The Redis of Celery.")
@click.option("--queue", default="celery", help="The queue of Celery.")
@click.option("--unacked", is_flag=True, help="Also tasks that workers fetched; stop them first.")
@click.option("--dry-run", is_flag=True, help="Change nothing.")
def main(tasks, broker, queue, unacked, dry_run):
    words = [re.fullmatch(r"([^(=]+)(?:\((.*)\))?=(.+)", task) for task in tasks]
    if None in words:
        raise click.UsageError("Write each as 'video.encode(film, size)=encode'.")
    names = {word[1]: (word[3], re.findall(r"\w+", word[2] or "")) for word in words}
    broker, client = redis.Redis.from_url(broker, decode_responses=True), blueque.Client()
    if unacked and any(seen["psub"] != "0" for seen in broker.client_list()):
        raise click.ClickException("A Celery worker or Flower is connected: stop it first.")
    ours, report = f"to-blueque:{queue}", Counter()
    for source, item, message in messages(broker, queue, unacked):
        headers = message["headers"]
        name = headers.get("task")
        try:
            task = translated(message, names.get(name), client)
        except ValueError as why:  # an InvalidInput of Blueque among them
            print(f"left {headers.get('id')}, {name}: {why}")
            continue
        if dry_run:
            report[f"to move to {task['queue']}"] += 1
        else:
            take(broker, source, item, ours, json.dumps(task))
    if not dry_run:
        finish(broker, client, ours, report)
    for line, number in report.items():
        print(number, line)


def messages(broker, queue, has_unacked):
    """Yield a key, what identifies a message in it, and the message."""
    for tag, value in broker.hgetall("unacked").items() if has_unacked else ():
        yield "unacked", tag, json.loads(value)[0]
    for source in (queue, *(f"{queue}\x06\x16{priority}" for priority in range(1, 256))):
        for raw in reversed(broker.lrange(source, 0, -1)):
            yield source, raw, json.loads(raw)


def translated(message, to, client):
    """Return the task that a message becomes. Raises ValueError if it cannot be moved."""
    headers, properties = message["headers"], message["properties"]
    if to is None:
        raise ValueError("it is not on the command line")
    if message["content-type"] != "application/json":
        raise ValueError(f"its content is {message['content-type']}")
    args, kwargs, after = json.loads(base64.b64decode(message["body"]))
    if any(after.values()):
        raise ValueError(f"it has {' and '.join(kind for kind in after if after[kind])}")
    if len(args) > len(to[1]):
        raise ValueError("it has more positional arguments than are named")
    if '"__type__"' in json.dumps([args, kwargs]):
        raise ValueError("an argument, such as a datetime, is not JSON")
    if client.get_task(headers["id"]).status is not None:
        raise ValueError(f"Blueque has a task {headers['id']} already")
    parameters = dict(zip(to[1], args, strict=False)) | kwargs
    eta, expires = seconds(headers["eta"]), seconds(headers["expires"])
    options = {"eta": eta or 0, "start_before": expires, "time_limit": headers["timelimit"][0]}
    options |= {"priority": -properties["priority"], "tags": ["from-celery"], "keep": "30d"}
    client.get_queue(to[0]).new_task(parameters, **options)  # refuses what enqueue would refuse
    known = "id" if re.fullmatch(r"[0-9A-Za-z][\w.:-]{0,199}", headers["id"], re.A) else "key"
    return {"queue": to[0], "parameters": parameters, "options": options | {known: headers["id"]}}


def seconds(text):
    """Return Unix seconds of a time of Celery, which is in UTC if it names no zone."""
    time = text and datetime.fromisoformat(text)
    return time and (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def take(broker, source, item, ours, text):
    """Move a message to our list, as a task, unless a worker is faster."""

    def move(pipe):
        is_list = source != "unacked"
        found = pipe.lpos(source, item, rank=-1) if is_list else pipe.hget(source, item)
        pipe.multi()
        if found is not None:
            pipe.lrem(source, -1, item) if is_list else pipe.hdel(source, item)
            pipe.zrem("unacked_index", item).lpush(ours, text)

    return broker.transaction(move, source)


def finish(broker, client, ours, report):
    """Enqueue the tasks of our list, also those of an earlier run that was killed."""
    for text in reversed(broker.lrange(ours, 0, -1)):
        task = json.loads(text)
        try:
            client.get_queue(task["queue"]).schedule(task["parameters"], **task["options"])
        except blueque.InvalidInput as error:
            report[f"left in {ours}: {error}"] += 1
        else:
            broker.lrem(ours, -1, text)
            report[f"moved to {task['queue']}"] += 1


try:
    main()
except (blueque.RedisAway, redis.ConnectionError, redis.TimeoutError) as error:
    raise SystemExit(f"{str(error).rstrip('.')}. Run this again when Redis answers.") from None
