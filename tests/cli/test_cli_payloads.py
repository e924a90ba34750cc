"""What commands show of encrypted tasks, with the keys and without, and what `doctor` says of keys."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest
from payload_keys import SECRET, name_of, octets_of, write_keys
from running import BLUEQUE

from blueque.listener.processor import Processor
from blueque.model.log_line import Line

K1 = name_of("k1")


@pytest.fixture
def task(sealed):
    """A task that has ended, with something in each place."""
    queue, listener = sealed.get_queue("payroll"), sealed.get_listener("payroll")
    task = queue.enqueue({"who": SECRET}, context={"trace": SECRET})
    processor = Processor(sealed.connections, listener.listen(timeout=0))
    assert processor.start(1) == {"who": SECRET}
    processor.checkpoint({"value": json.dumps({"at": SECRET})})
    processor.log([Line(1, 2.5, "stdout", f"printed {SECRET}")])
    processor.complete([SECRET])
    sealed.set_schedule(
        "nightly", queue="payroll", parameters={"who": SECRET}, every="1h", context={"a": SECRET}
    )
    return task


@pytest.fixture
def shown(environ, keys):
    """Run commands in a process of their own: this one has the keys."""

    def shown(has_keys, *arguments):
        own = {"BLUEQUE_PAYLOADS_KEYS": str(keys)} if has_keys else {}
        done = subprocess.run(
            [*BLUEQUE, *arguments], env=environ | own, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return shown


COMMANDS = [
    ["show", "{task}"],
    ["show", "{task}", "--json"],
    ["ls", "--state", "complete"],
    ["ls", "--state", "complete", "--columns", "parameters,result"],
    ["ls", "--state", "complete", "--json"],
    ["logs", "{task}"],
    ["export", "-q", "payroll"],
    ["export", "-q", "payroll", "--format", "csv"],
    ["wait", "{task}", "--json"],
    ["schedule", "show", "nightly"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_the_key_a_command_shows_a_word_and_with_it_the_value(shown, task, sealed, words):
    words = [word.format(task=task) for word in words]
    without, having = shown(False, *words), shown(True, *words)
    assert f"[encrypted: {K1}]" in without, without
    assert SECRET in having, having
    assert SECRET not in without
    fields = sealed.get_task(task).fields
    for text in (fields["parameters"], fields["result"], fields["context"]):
        assert text[:40] not in without + having


def test_secrets_are_hidden_behind_the_decryption(shown, sealed):
    task = sealed.get_queue("payroll").enqueue({"password": "hunter2"})
    assert "hunter2" not in shown(True, "show", task)
    assert "[hidden]" in shown(True, "show", task)
    assert "hunter2" in shown(True, "show", task, "--reveal")


@pytest.mark.parametrize("garbage", ["AAAA", "%", base64.b64encode(octets_of("x") * 9).decode()])
@pytest.mark.parametrize("words", [["show"], ["ls", "--state", "all"], ["logs"], ["why"]])
def test_what_is_damaged_is_a_word(shown, task, redis, garbage, words):
    fields = ("parameters", garbage, "result", garbage, "context", f"aes:{K1}:json {garbage}")
    redis.read(("HSET", f"blueque_task_{task}", *fields))
    redis.read(
        ("XADD", f"blueque_log_{task}", "*", "attempt", 1, "line", 2, "at", 1)
        + ("stream", "stdout", "text", garbage, "encoding", f"aes:{K1}")
    )
    said = shown(True, *words, *([] if words[0] == "ls" else [task]))
    assert "[damaged]" in said
    assert garbage not in said or garbage == "%"


def test_doctor_names_the_keys_that_are_still_needed(run, sealed, keys):
    queue = sealed.get_queue("payroll")
    for _ in range(2):
        queue.enqueue("a")
    sealed.set_schedule("nightly", queue="payroll", parameters="a", every="1h")
    queue.schedule("a", 4e9)

    def said(**environ):
        return [line for line in run("doctor", **environ).stdout.splitlines() if "need" in line]

    with_keys = {"BLUEQUE_PAYLOADS_KEYS": str(keys)}
    needed = f"4 unfinished tasks and schedules need payload key {K1}"
    assert said(**with_keys) == []
    assert said() == [f"ok    {needed}."]
    write_keys(keys, "k2", "k1")
    assert said(**with_keys) == [
        f"ok    {needed}, which is not the first in {keys}: keep it there."
    ]
    sealed.set_schedule("nightly", queue="payroll", parameters="a", every="1h")
    write_keys(keys, "k2")
    needed = needed.replace("4", "3")
    assert said(**with_keys) == [f"warn  {needed}, which {keys} does not have."]
    keys.chmod(0o644)
    fails = [line for line in run("doctor", **with_keys).stdout.splitlines() if "FAIL" in line]
    assert fails == [f"FAIL  {keys}: others can read it (mode 0644): chmod 600 {keys}."]


def test_a_wrong_setting_is_a_sentence_that_names_it(run, tmp_path):
    wrong = run("ls", BLUEQUE_PAYLOADS_COMPRESS_FROM="much")
    assert (
        wrong.returncode == 78
        and "blueque: BLUEQUE_PAYLOADS_COMPRESS_FROM: 'much' is" in wrong.stderr
    )
    missing = run("enqueue", "q", "1", BLUEQUE_PAYLOADS_KEYS=str(tmp_path / "none"))
    assert (
        missing.returncode == 78
        and "none: the payload keys cannot be read: No such" in missing.stderr
    )
