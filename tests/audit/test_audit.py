"""The audit: a clean Redis has no finding, each damage exactly its own, and each repair leaves a
clean Redis.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from legacy import WORK, Legacy
from restoring import restoring
from running import Programs
from transactions import TRANSACTIONS, protocol

from blueque import BluequeError, Client, Processor, Retry, Task
from blueque.audit import audit as module
from blueque.audit import groups
from blueque.audit.audit import Finding, audit, repair
from blueque.audit.observation import WARNINGS
from blueque.cli.verbs import doctor
from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.group import Links, condition_on
from blueque.model.lines import line_of, write_needs
from blueque.model.new_task import NewTask
from blueque.model.queue_settings import pausing
from blueque.model.recurrence import Rule
from blueque.model.schedule import Definition
from blueque.protocol.bulk import NewTasks
from blueque.protocol.ends import End
from blueque.protocol.members import MemberBatch
from blueque.protocol.membership import Heartbeat
from blueque.protocol.recover import Loss
from blueque.protocol.schedules import Define, Pause
from blueque.recovery.group_settling import settle_groups_step

Q = 'films "à la carte" \\ [1]'
NODE, OTHER, DEAD, GHOST = "a host_7", "b.example.com_8", "a host_6", "ghost_5"
# a queue with lines, its listener, and one that nobody listens to
G, GPU, BARE = "gpus", "gpu_1", "bare"
LOCK, HEAVY = "a_b %", "0,gpu=1,lock:licence=2"
D = "graph"  # its tasks wait for each other


class House:
    """A queue with a task in each status, two listeners that live and one that is dead and holds a
    started task.
    """

    def __init__(self, redis: Any, cli: Any) -> None:
        self.redis, self.cli = redis, cli

    def build(self) -> None:
        redis = self.redis
        for task in ("started", "complete", "failed", "reserved"):
            self._add(NODE, task)
        protocol.end(redis, AttemptRef(Q, "complete", "t-complete", NODE), End.complete("r"), 5.0)
        protocol.end(redis, AttemptRef(Q, "failed", "t-failed", NODE), End.fail("e"), 5.0)
        protocol.schedule(redis, Q, "scheduled", "p", 100.0, 1.0)
        protocol.enqueue(redis, Q, "cancelled", "p", 1.0)
        protocol.cancel(redis, Q, "cancelled", "me", None, 2.0)
        protocol.enqueue(redis, Q, "tagged", "p", 1.0, {"tags": "customer:17 ü"})
        protocol.cancel(redis, Q, "tagged", "me", None, 2.0)
        self._add(DEAD, "adrift")
        protocol.fence(redis, Q, DEAD, f"i-{DEAD}", "0", 9.25)
        protocol.register(redis, Q, OTHER, f"i-{OTHER}", {}, 2.0)
        for task in ("pending", "second"):
            protocol.enqueue(redis, Q, task, "p", 1.0)
        self._add_lines()
        self._add_keyed()
        self._add_dependencies()
        self._add_groups()
        self._add_schedules()

    def _add_schedules(self) -> None:
        """A schedule of which a task has come, one that is paused, and one whose rule is over."""
        redis = self.redis
        rules = {
            "s 1": Rule(every=3600),
            "paused": Rule("30 2 * * *", timezone="Europe/Berlin"),
            "over": Rule(every=3600, until=4_000_000_000),
        }
        for name, rule in rules.items():
            definition = Definition("later", rule, "p", options={"needs": "gpu=1"})
            protocol.set_schedule(redis, name, Define(definition, "hand"), "ann")
        protocol.set_schedule(redis, "paused", Pause(), "me")
        protocol.trigger(redis, "s 1", "mark", "me")
        redis.read(
            ("HSET", keys.schedule("over"), "last", 3_999_999_600),
            ("HDEL", keys.schedule("over"), "planned", "at"),
            ("ZADD", keys.SCHEDULES, "+inf", "over"),
        )

    def _add_groups(self) -> None:
        """A group with two members in line, one that was cancelled and one that is complete; and one
        that has ended.
        """
        redis = self.redis
        for group, tasks in (
            ("g 1", ("g-open", "g-next", "g-bad", "g-complete")),
            ("g 2", ("g-last",)),
        ):
            protocol.open_group(redis, group, 3600, 1.0)
            for task in tasks:
                new = NewTask(task, D, "p", {"group": group}, {})
                protocol.enqueue_after(redis, [new], 1.0)
            protocol.close_group(redis, group, 1.0)
        for task in ("g-bad", "g-last"):
            protocol.cancel(redis, D, task, "me", None, 2.0)
        redis.read(
            ("HSET", keys.task("g-complete"), "status", "complete", "result", "r"),
            ("LREM", keys.pending(D), 0, "g-complete"),
            ("LPUSH", keys.complete(D), "g-complete"),
        )
        protocol.settle_members(redis, "g 1", ["g-complete", "g-bad"])
        while settle_groups_step(redis, 3.0):
            continue

    def _add_dependencies(self) -> None:
        """A task for which two wait, a third one that waits for one of these, and a cancelled task
        by which one is held.
        """
        redis = self.redis
        for task in ("d-root", "d-broken"):
            protocol.enqueue(redis, D, task, "p", 1.0)
        waiting = {
            "d-held": {"d-root": "ok", "d-broken": "ok"},
            "d-waits": {"d-root": "ok"},
            "d-last": {"d-waits": "any"},
        }
        for task, conditions in waiting.items():
            protocol.enqueue_after(redis, [NewTask(task, D, "p", {}, conditions)], 1.0)
        protocol.cancel(redis, D, "d-broken", "me", None, 2.0)
        protocol.settle(redis, "d-broken", 3.0)
        self.cli.zadd(keys.blocked(D), dict.fromkeys(waiting, 1.0))

    def _add_keyed(self) -> None:
        """A group with a task that has a key, and an empty one."""
        redis = self.redis
        protocol.open_group(redis, "keyed", 60, 1.0)
        later = NewTasks([KEYED.encode()], [(b"p", False)], None, [100.0])
        protocol.enqueue_members(redis, MemberBatch(Q, Links("keyed"), later, 1.0, {}))
        protocol.open_group(redis, "idle", 60, 1.0)

    def _add_lines(self) -> None:
        """A queue with a limit, in which one task holds a lock and others wait for theirs, or have
        a priority.
        """
        redis, needs = self.redis, write_needs({}, LOCK, 1)
        protocol.set_settings(redis, G, {"max_running": "3"}, 1.0)
        protocol.register(redis, G, GPU, "i", {"resources": "gpu=2,memory=8"}, 2.0)
        protocol.enqueue(redis, G, "locked", "p", 1.0, {"priority": -7, "needs": needs})
        protocol.pop(redis, G, GPU, "i", line_of("-7", needs))
        protocol.reserve(redis, AttemptRef(G, "locked", "t-locked", GPU), "i", 3.0)
        protocol.start(redis, AttemptRef(G, "locked", "t-locked", GPU), 99, 4.0)
        protocol.align_line(redis, G, line_of("-7", needs))
        protocol.enqueue(redis, G, "urgent", "p", 1.0, {"priority": 5})
        protocol.enqueue(redis, G, "heavy", "p", 1.0, {"needs": HEAVY.partition(",")[2]})
        protocol.enqueue(redis, BARE, "waiting", "p", 1.0, {"priority": 9, "needs": "gpu=3"})
        protocol.enqueue(redis, BARE, "shut out", "p", 1.0, {"needs": "lock:other=1"})
        protocol.set_settings(redis, "empty", pausing("me", "deploy", 5.0), 5.0, "me")
        self.cli.set(keys.key_kept("deleted"), 1, ex=1000)

    def _add(self, node: str, task: str) -> None:
        redis, instance = self.redis, f"i-{node}"
        protocol.register(redis, Q, node, instance, {}, 2.0)
        protocol.enqueue(redis, Q, task, "p", 1.0)
        protocol.pop(redis, Q, node, instance)
        protocol.reserve(redis, AttemptRef(Q, task, f"t-{task}", node), instance, 3.0)
        if task != "reserved":
            protocol.start(redis, AttemptRef(Q, task, f"t-{task}", node), 99, 4.0)


@pytest.fixture(scope="module")
def built() -> dict[float, list[Command]]:
    """What puts every key of a house back, by the hour in which it was built: schedules are due
    every hour.
    """
    return {}


@pytest.fixture
def house(redis: Any, cli: Any, built: dict[float, list[Command]]) -> House:
    """A house that was built once: that takes 80 transactions, and to put it back one round trip."""
    house, hour = House(redis, cli), time.time() // 3600
    if hour not in built:
        house.build()
        built[hour] = restoring(redis)
    redis.read(*built[hour])
    return house


class Damage(NamedTuple):
    """Commands that do damage, and the finding they must give: its code, key and task."""

    name: str
    code: str
    is_fixed: bool
    key: str
    task: str | None
    commands: tuple[Command, ...]

    def do(self, redis: Redis) -> None:
        redis.read(*self.commands)


KEYED = "00000000-0000-4000-8000-00000a0d225c"
T = keys.task
P, Z, S, C, F, X, L, N, W = (
    name(Q)
    for name in (
        keys.pending,
        keys.scheduled,
        keys.started,
        keys.complete,
        keys.failed,
        keys.cancelled,
        keys.listeners,
        keys.nodes,
        keys.wake,
    )
)
INDEX, R = keys.tasks(Q), keys.reserved(Q, NODE)
GL, FIVE, LICENCE, CAP = keys.lines(G), keys.line(G, "5"), keys.line(G, HEAVY), keys.settings(G)
WAITERS = keys.waiting("licence")
B, A = keys.blocked(D), keys.conditions
SCHEDULE = keys.schedule("s 1")


def read_damages() -> Iterator[Damage]:
    """Yield the damages of damages.txt, which says how to read it."""
    text = Path(__file__).with_name("damages.txt").read_text()
    code, is_fixed = "", True
    for line in re.sub(r"\n {8}", " ", text).splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            code, _, left = line.partition(", ")
            is_fixed = not left
            continue
        name, found, commands = (part.strip() for part in line.split(" | ", 2))
        key, *task = words(found)
        sent = tuple(tuple(words(command)) for command in commands.split(";"))
        yield Damage(name, code, is_fixed, key, task[0] if task else None, sent)


def words(text: str) -> list[str]:
    found = re.findall(r'"([^"]*)"|(\w+\([^)]*\)|\S+)', text)
    return [word(quoted or plain) for quoted, plain in found]


def word(text: str) -> str:
    call = re.fullmatch(r"(\w+)\((.*)\)", text)
    if call is not None:
        arguments = call[2].split(",", 1)
        key: str = getattr(keys, call[1])(*[KNOWN.get(one, one) for one in arguments])
        return key
    return KNOWN.get(text) or text.format(**KNOWN)


def wrong_rule(name: str, *command: object) -> Damage:
    return Damage(name, "schedule_rule", False, keys.schedule("paused"), None, (command,))


KNOWN: dict[str, str] = {
    name: value
    for name, value in {**vars(keys), **globals()}.items()
    if name.isupper() and isinstance(value, str)
}
CROWD = [word for number in range(101) for word in (1, f"1,lock:customer-{number}=1")]
DAMAGES = [
    *read_damages(),
    Damage(
        "a task deleted by 1.0.0",
        "no_hash",
        True,
        INDEX,
        "complete",
        (("DEL", *keys.belongings("complete")), ("LREM", C, 1, "complete")),
    ),
    Damage(
        "many lines that are listed, and nobody stands in them",
        "empty_line",
        True,
        keys.lines(BARE),
        None,
        (("ZADD", keys.lines(BARE), *CROWD),),
    ),
    *[
        wrong_rule(
            f"a schedule with the {field} {value!r}", "HSET", keys.schedule("paused"), field, value
        )
        for field, value in (
            ("cron", "61 * * * *"),
            ("cron", "every minute"),
            ("every", "3600"),
            ("timezone", "Mars/Olympus"),
            ("overlap", "wait"),
            ("options", '{"needs": "gpu"}'),
            ("options", '{"priority": [1]}'),
            ("options", "[]"),
            ("last", "yesterday"),
        )
    ],
]


def test_a_house_in_order_has_no_finding(house):
    assert audit(house.redis) == []


def test_a_few_lines_in_which_nobody_stands_are_no_finding(house):
    house.cli.zadd(keys.lines(BARE), {f"1,lock:customer-{number}=1": 1 for number in range(100)})

    assert audit(house.redis) == []


def test_an_empty_redis_has_no_finding(redis):
    assert audit(redis) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_each_damage_has_exactly_its_own_finding(house, damage):
    damage.do(house.redis)

    for settle in (0.0, 0.01):
        found = audit(house.redis, settle)

        assert [(finding.code, finding.key, finding.task) for finding in found] == [
            (damage.code, damage.key, damage.task)
        ]
        assert (found[0].fix is not None) == damage.is_fixed


FIXED = [damage for damage in DAMAGES if damage.is_fixed]
LEFT = [damage for damage in DAMAGES if not damage.is_fixed]
# What is repaired otherwise than by putting everything back as it was, as a deleted task, or a
# listener that is dead.
CHANGED = {"recover", "deregister", "recheck", "drop_stale", "settle_members", "finish_group"}
CHANGED |= {"both", "left_behind", "stump", "untold"}


@pytest.mark.parametrize("damage", FIXED, ids=[damage.name for damage in FIXED])
def test_a_repair_puts_back_what_was_and_nothing_else_and_done_again_changes_nothing(
    house, damage, state
):
    before = tidy(state())
    damage.do(house.redis)
    (found,) = audit(house.redis)

    assert repair(house.redis, found, 9.0)
    assert audit(house.redis) == []
    repair(house.redis, found, 9.5)
    assert audit(house.redis) == []

    if not (
        {found.fix, found.code} & CHANGED
        or "another queue" in damage.name
        or re.search("deleted|index|chunk|queue is not listed|is over$", damage.name)
    ):
        assert tidy(state()) == before


def tidy(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a repair may change: the order of lists, and `updated`."""

    def tidied(value: Any) -> Any:
        if isinstance(value, list):
            return sorted(value)
        return (
            {name: text for name, text in value.items() if name != "updated"}
            if isinstance(value, dict)
            else value
        )

    return {key: tidied(value) for key, value in state.items() if not key.startswith(keys.wake(""))}


def test_every_code_is_in_the_document_with_its_repair_and_is_made_by_a_damage():
    document = (Path(__file__).parents[2] / "docs" / "protocol" / "audit.md").read_text()
    lists = document.partition("## Invariants\n")[2].partition("\n## ")[0]
    rows = [
        (code, repair)
        for repair, part in re.findall(r"^- (\w+): (.*\n(?:  .*\n)*)", lists, flags=re.M)
        for code in re.findall(r"`(\w+)`", part)
    ]

    assert {code for code, _ in rows} == {damage.code for damage in DAMAGES} >= WARNINGS
    assert {repair for _, repair in rows} - {"none"} <= set(TRANSACTIONS)
    assert {code for code, repair in rows if repair != "none"} == {damage.code for damage in FIXED}
    assert {code for code, repair in rows if repair == "none"} <= {damage.code for damage in LEFT}


def test_doctor_has_words_for_every_repair():
    codes = {damage.code for damage in DAMAGES}
    assert doctor._REPAIRS.keys() - codes == module._REPAIRS.keys()


def codes(findings: Iterable[Finding]) -> list[str]:
    return sorted(finding.code for finding in findings)


def repair_all(redis: Any) -> list[Finding]:
    """Repair until nothing is left that can be; return what is."""
    for _ in range(5):
        found = audit(redis)
        if not [finding for finding in found if finding.fix and repair(redis, finding, 9.0)]:
            break
    return found


# A look at what moves


def test_a_task_that_has_moved_on_meanwhile_is_no_finding(house):
    house.cli.lmove(P, R, "RIGHT", "LEFT")

    def reserve(seconds: float) -> None:
        protocol.reserve(house.redis, AttemptRef(Q, "pending", "t", NODE), f"i-{NODE}", 9.0)

    assert codes(audit(house.redis)) == ["popped"]
    assert audit(house.redis, 1.0, reserve) == []


def test_a_task_missed_in_line_that_turns_up_in_the_list_of_a_listener_is_no_finding(house):
    house.cli.lrem(P, 1, "pending")

    assert (
        audit(house.redis, 1.0, lambda seconds: house.cli.lpush(keys.reserved(Q, OTHER), "pending"))
        == []
    )


def test_a_task_of_a_dead_listener_that_a_living_one_has_claimed_is_no_finding(house):
    house.cli.lmove(R, keys.reserved(Q, DEAD), "LEFT", "LEFT")
    house.cli.hset(T("reserved"), mapping={"node": DEAD, "reclaimed_node": OTHER})

    assert audit(house.redis) == []


def test_a_lock_that_has_other_holders_in_each_scan_is_no_finding(house):
    """A scan may see the hash of a task that is about to free a lock, and then that of the next."""
    house.cli.sadd(keys.lock(LOCK), "started")
    house.cli.hset(T("started"), "lock", LOCK)

    def pass_on(seconds: float) -> None:
        house.cli.srem(keys.lock(LOCK), "started")
        house.cli.hdel(T("started"), "lock")
        house.cli.sadd(keys.lock(LOCK), "reserved")
        house.cli.hset(T("reserved"), "lock", LOCK)

    assert codes(audit(house.redis)) == ["overfull"]
    assert audit(house.redis, 1.0, pass_on) == []


def test_a_task_that_was_put_back_in_line_between_two_scans_is_no_finding(house):
    house.cli.lrem(P, 1, "pending")

    def put_back_and_pop(seconds: float) -> None:
        (finding,) = audit(house.redis)
        repair(house.redis, finding, 9.0)
        house.cli.lrem(P, 1, "pending")

    assert audit(house.redis, 1.0, put_back_and_pop) == []


def test_an_audit_beside_busy_listeners_has_no_finding(url, redis):
    stop = threading.Event()

    def work(node: str) -> None:
        with contextlib.closing(Client(url)) as client:
            own, instance = client.connections, f"i-{node}"
            protocol.register(own, "busy", node, instance, {}, 1.0)
            while not stop.is_set():
                task, token = uuid.uuid4().hex, uuid.uuid4().hex
                protocol.enqueue(own, "busy", task, "p", 1.0)
                popped, *_ = protocol.pop(own, "busy", node, instance)
                if popped and protocol.reserve(
                    own, AttemptRef("busy", popped, token, node), instance, 1.0
                ):
                    protocol.start(own, AttemptRef("busy", popped, token, node), 1, 1.0)
                    protocol.end(
                        own, AttemptRef("busy", popped, token, node), End.complete("r"), 1.0
                    )

    threads = [threading.Thread(target=work, args=(f"h_{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        seen = [audit(redis, 0.1) for _ in range(5)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen == [[]] * 5
    assert audit(redis) == []


def test_an_audit_beside_busy_groups_has_no_finding(url, redis):
    stop = threading.Event()

    def work(number: int) -> None:
        with contextlib.closing(Client(url)) as client:
            queue = client.get_queue("busy")
            while not stop.is_set():
                names = [str(n) for n in range(20)]
                queue.enqueue_many(names, keys=names, group=uuid.uuid4().hex)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        seen = [audit(redis, 0.1) for _ in range(5)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert seen == [[]] * 5
    assert audit(redis) == []


def test_an_audit_does_not_loosen_the_guard_of_a_spare_id(house, client):
    """An EXEC ends every watch on its connection, and with it that of the next enqueue's spare id."""
    queue = client.get_queue(Q)
    queue.enqueue("p")
    assert house.redis.look_ahead is not None
    spare = house.redis.look_ahead.task
    house.cli.lpush(P, "nobody")
    audit(house.redis, 0.01)
    house.cli.hset(T(spare), "status", "taken")
    queue.enqueue("p")

    assert house.cli.hgetall(T(spare)) == {"status": "taken"}


# Dependencies


def dependents_of(redis: Any, parent: str, count: int) -> list[str]:
    """Have so many tasks wait for one of the queue D, and return their ids."""
    children = [f"{parent}-{number:04}" for number in range(count)]
    for first in range(0, count, 100):
        some = [NewTask(task, D, "p", {}, {parent: "ok"}) for task in children[first : first + 100]]
        protocol.enqueue_after(redis, some, 1.0)
    return children


def settle_all(redis: Any, task: str) -> None:
    while not protocol.settle(redis, task, 3.0).is_over:
        pass


def test_a_task_that_was_let_go_between_two_scans_is_no_finding(house):
    house.cli.hset(A("d-waits"), "d-root", "+complete")

    assert codes(audit(house.redis)) == ["ripe"]
    assert (
        audit(house.redis, 1.0, lambda seconds: protocol.recheck(house.redis, D, "d-waits", 9.0))
        == []
    )


def test_a_task_that_is_about_to_be_looked_at_is_no_finding(house):
    house.cli.hset(A("d-waits"), "d-root", "+complete")
    house.cli.zrem(keys.dependents("d-waits"), "d-last")
    house.cli.zadd(B, {"d-waits": 0, "d-last": 0})

    assert audit(house.redis) == []


def test_an_end_that_is_about_to_be_told_is_no_finding(house):
    protocol.cancel(house.redis, D, "d-root", "me", None, 9.0)

    assert house.cli.zrange(keys.UNSETTLED_TASKS, 0, -1) == ["d-root"]
    assert audit(house.redis) == []


def test_an_end_that_a_group_is_about_to_note_is_no_finding(house):
    protocol.cancel(house.redis, D, "g-open", "me", None, 9.0)
    assert audit(house.redis) == []

    protocol.settle_members(house.redis, "g 1", ["g-open"])
    protocol.cancel(house.redis, D, "g-next", "me", None, 9.7)
    protocol.settle_members(house.redis, "g 1", ["g-next"])
    assert house.cli.zscore(keys.GROUPS, "g 1") == 0
    assert audit(house.redis) == []


def test_a_member_that_was_deleted_after_its_end_was_noted_is_no_finding(house):
    for task in ("g-bad", "g-complete"):
        protocol.delete(house.redis, D, task)

    assert audit(house.redis) == []


def test_a_schedule_that_was_moved_on_between_two_scans_is_no_finding(house):
    house.cli.zadd(keys.SCHEDULES, {"s 1": 5})

    moved = audit(
        house.redis, 1.0, lambda _: protocol.set_schedule(house.redis, "s 1", Pause(), "me")
    )

    assert moved == []


@pytest.mark.parametrize("place", [0, 10, 24])
def test_many_members_are_read_in_pieces(house, monkeypatch, place):
    monkeypatch.setattr(groups, "BATCH", 10)
    tasks = [f"many-{number}" for number in range(25)]
    protocol.open_group(house.redis, "g 3", 3600, 9.0)
    new = [NewTask(task, D, "p", {"group": "g 3"}, {}) for task in tasks]
    protocol.enqueue_after(house.redis, new, 9.0)
    assert audit(house.redis) == []
    house.cli.srem(keys.open_members("g 3"), tasks[place])

    (found,) = audit(house.redis, 0.01)

    assert (found.code, found.task, found.text) == ("open_member", tasks[place], "g 3")
    assert repair(house.redis, found, 9.5) and audit(house.redis) == []


def test_what_was_cancelled_for_a_task_that_1_0_0_completes_is_found_and_learns_it(redis, cli):
    protocol.enqueue(redis, D, "above", "p", 1.0)
    below = NewTask("below", D, "p", {"broken": "cancel"}, {"above": "ok"})
    protocol.enqueue_after(redis, [below], 1.0)
    protocol.cancel(redis, D, "above", "me", None, 2.0)
    settle_all(redis, "above")
    assert cli.hget(keys.task("below"), "status") == "cancelled"
    cli.lrem(keys.cancelled(D), 0, "above")
    cli.lpush(keys.complete(D), "above")
    cli.hset(keys.task("above"), mapping={"status": "complete", "result": "r"})

    (found,) = (each for each in audit(redis) if each.code == "untold")
    assert found.task == "above" and repair(redis, found, 9.0)
    settle_all(redis, "above")

    assert cli.hget(keys.task("below"), "status") == "cancelled"
    assert protocol.requeue(redis, D, "below", "mark", 9.5) == "pending"


def test_a_dependent_that_was_deleted_is_no_finding(house):
    protocol.cancel(house.redis, D, "d-held", "me", None, 9.0)
    protocol.delete(house.redis, D, "d-held")

    assert house.cli.zrange(keys.dependents("d-broken"), 0, -1) == ["d-held"]
    assert audit(house.redis) == []


@pytest.mark.parametrize("place", [0, 149, 249])
def test_many_dependents_are_read_in_pieces(redis, cli, place):
    protocol.enqueue(redis, D, "broken", "p", 1.0)
    children = dependents_of(redis, "broken", 250)
    protocol.cancel(redis, D, "broken", "me", None, 2.0)
    settle_all(redis, "broken")
    assert audit(redis) == []
    cli.zadd(keys.dependents("broken"), {children[place]: 1.0})

    (found,) = audit(redis, 0.01)

    assert (found.code, found.task) == ("untold", "broken")
    assert children[place] in found.sentence


def test_a_group_for_which_a_task_waits_is_no_finding(redis, cli):
    protocol.open_group(redis, "night 1", 60, 1.0)
    new = NewTask("t", D, "p", {}, {condition_on("night 1"): "ok"})
    protocol.enqueue_after(redis, [new], 1.0)
    assert cli.exists(keys.GROUPS, keys.group("night 1"), keys.awaiting("night 1")) == 3

    assert audit(redis) == []


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (5, "t0, t1, t2, t3, t4"),
        (10, "t0, t1, t2, t3, t4, t5, t6, t7, t8, t9"),
        (11, "t0, t1, t10, t2, t3, t4, t5, t6, t7, t8 and 1 more"),
    ],
)
def test_a_circle_names_its_first_ten_tasks_and_no_others(redis, cli, size, names):
    protocol.enqueue(redis, D, "root", "p", 1.0)
    chain = ["root", *(f"t{number}" for number in range(size)), "outside"]
    for parent, task in itertools.pairwise(chain):
        protocol.enqueue_after(redis, [NewTask(task, D, "p", {}, {parent: "ok"})], 1.0)
    last = f"t{size - 1}"
    cli.hset(A("t0"), last, "ok")
    cli.hset(T(last), "dependents", 1)
    cli.zadd(keys.dependents(last), {"t0": 1})

    (found,) = audit(redis, 0.01)

    assert (found.code, found.fix, found.is_warning) == ("circle", None, False)
    assert f"tasks {names} wait for each other" in found.sentence


def test_who_waits_for_a_group_of_blocked_tasks_is_in_no_circle(redis):
    protocol.enqueue(redis, D, "root", "p", 1.0)
    protocol.open_group(redis, "day", 60, 1.0)
    member = NewTask("member", D, "p", {"group": "day"}, {"root": "ok"})
    protocol.enqueue_after(redis, [member], 1.0)
    last = NewTask("last", D, "p", {}, {"group day": "ok", "member": "ok"})
    protocol.enqueue_after(redis, [last], 1.0)

    assert audit(redis) == []


def test_a_task_that_waits_for_its_own_group_is_a_circle(redis, cli):
    protocol.open_group(redis, "day", 60, 1.0)
    protocol.enqueue_after(redis, [NewTask("one", D, "p", {}, {"group day": "ok"})], 1.0)
    cli.hset(T("one"), "group", "day")
    cli.zadd(keys.members("day"), {"one": 1})
    cli.sadd(keys.open_members("day"), "one")

    (found,) = audit(redis, 0.01)

    assert found.sentence.startswith("task one waits for itself through group day, and can never")


# Repairs beside others


def test_a_task_that_has_ended_meanwhile_is_not_put_back_among_the_started(house):
    house.cli.srem(S, f"{NODE} 99 started")
    (found,) = audit(house.redis)
    protocol.end(house.redis, AttemptRef(Q, "started", "t-started", NODE), End.complete("r"), 9.0)

    assert not repair(house.redis, found, 9.5)

    assert audit(house.redis) == []


def test_a_task_that_was_put_back_and_popped_meanwhile_is_not_put_in_line_again(house):
    """A listener of 1.0.0 would run the second entry, whatever the hash says."""
    house.cli.lrem(P, 1, "pending")
    (found,) = audit(house.redis)
    repair(house.redis, found, 9.0)
    protocol.pop(house.redis, Q, NODE, f"i-{NODE}")

    assert not repair(house.redis, found, 9.5)

    assert house.cli.lrange(P, 0, -1) == ["second"]


def test_a_task_popped_by_two_listeners_that_died_is_in_line_once(house):
    house.cli.lmove(P, keys.reserved(Q, DEAD), "RIGHT", "LEFT")
    house.cli.lpush(keys.reserved(Q, GHOST), "pending")

    assert repair_all(house.redis) == []

    assert house.cli.lrange(P, 0, -1).count("pending") == 1


def test_a_line_is_repaired_only_if_something_is_wrong(house):
    house.cli.zadd(GL, {"4": 4})  # and nobody stands in it

    repaired = [protocol.align_line(house.redis, G, line) for line in ("4", "4", "5", "5", "6")]

    assert repaired == [True, False, False, False, False]


def test_a_house_in_ruins_is_repaired_but_for_what_a_person_decides(house):
    for damage in FIXED:
        damage.do(house.redis)

    assert [finding for finding in repair_all(house.redis) if finding.fix] == []


# Names


def test_a_list_that_may_be_of_two_queues_and_holds_no_task_is_nobodys(redis, cli):
    for queue in ("a", "a_b"):
        protocol.enqueue(redis, queue, f"of {queue}", "p", 1.0)
    cli.lpush(keys.reserved("a_b", "h_1"), "nobody")

    (found,) = audit(redis)

    assert (found.code, found.fix) == ("unknown_key", None)


# Size


def test_a_large_redis_is_read_in_pieces(redis, cli):
    pipeline = cli.pipeline()
    for number in range(2500):
        task = f"t{number}"
        pipeline.hset(
            T(task),
            mapping={"status": "complete", "queue": "large", "parameters": "p", "attempt": 1},
        )
        pipeline.lpush(keys.complete("large"), task)
        pipeline.zadd(keys.tasks("large"), {task: 1})
    pipeline.zadd(keys.QUEUES, {"large": 0})
    pipeline.execute()
    assert audit(redis) == []
    for number in range(0, 2500, 50):
        cli.lrem(keys.complete("large"), 1, f"t{number}")

    assert codes(audit(redis, 0.01)) == ["missing"] * 50


# Health


ACTS = [
    *(*["enqueue"] * 3, "schedule", "due", *["take"] * 3, *["start"] * 2, "complete"),
    *("fail", "release", "progress", "cancel", "confirm", "requeue", "delete", "die"),
    *("leave", "order", "beat", "prioritise", "put_first", "limit", "pause", "resume"),
    *("move", *["wait_for"] * 2, "settle", "recheck", "unblock", "bring_forward", "purge"),
    *("join", "join", "close", "reopen", "settle_groups", "spawn"),
]


class Bustle:
    """People and listeners that do what they may, in any order."""

    def __init__(self, seed: int, client: Client, redis: Any) -> None:
        self.random, self.client, self.redis = Random(seed), client, redis
        self.queue, self.made = client.get_queue(Q), list[str]()
        self.nodes: dict[str, str] = {}
        self.tasks: dict[str, Task | None] = {}
        for number in range(3):
            self.register(f"h{number}.example.com_{number}")

    def register(self, node: str) -> None:
        self.nodes[node], self.tasks[node] = uuid.uuid4().hex, None
        facts = {"beat_every": 10, "resources": "gpu=1"}
        protocol.register(self.redis, Q, node, self.nodes[node], facts, time.time())

    def step(self) -> str:
        name = self.random.choice(ACTS)
        with contextlib.suppress(BluequeError):
            getattr(self, name)()
        return name

    def any_task(self) -> str:
        return self.random.choice(self.made or ["none"])

    def any_node(self) -> str:
        return self.random.choice(list(self.nodes))

    def processor(self) -> Processor:
        busy = [task for task in self.tasks.values() if task is not None]
        if not busy:
            raise BluequeError("all are idle")
        return self.client.get_processor(self.random.choice(busy))

    def enqueue(self) -> None:
        if self.client.get_inspector().pending(Q) > 3:
            return
        retry = self.random.choice([None, Retry(max=1, backoff=0), Retry(max=2)])
        self.made.append(self.queue.enqueue("p", retry=retry, **self.wishes()))

    def schedule(self) -> None:
        self.made.append(
            self.queue.schedule(
                "p", time.time() + self.random.choice([-5, 5, 500]), **self.wishes()
            )
        )

    def wait_for(self) -> None:
        """Enqueue a task that waits for others, however these stand."""
        parents = self.random.sample(self.made, min(len(self.made), self.random.randint(1, 3)))
        options = self.random.choice([{}, {"broken": "cancel"}, {"inputs": 0}, {"priority": 7}])
        conditions = {parent: self.random.choice(["ok", "any", "not_ok"]) for parent in parents}
        task = uuid.uuid4().hex
        if parents:
            new = NewTask(task, Q, "p", options, conditions)
            protocol.enqueue_after(self.redis, [new], time.time())
            self.made.append(task)

    def settle(self) -> None:
        (unsettled,) = self.redis.read(("ZRANGE", keys.UNSETTLED_TASKS, 0, 2))
        for task in unsettled:
            protocol.settle(self.redis, task, time.time())

    def recheck(self) -> None:
        (blocked,) = self.redis.read(("ZRANGE", keys.blocked(Q), 0, -1))
        for task in blocked:
            protocol.recheck(self.redis, Q, task, time.time())

    def unblock(self) -> None:
        protocol.unblock(self.redis, Q, self.any_task(), time.time(), "me")

    def bring_forward(self) -> None:
        self.queue.bring_forward(self.any_task())

    def purge(self) -> None:
        """Delete a task that waits; an audit names a group that has not noted that yet."""
        task = self.any_task()
        if "group" not in self.client.get_task(task).fields:
            protocol.purge(self.redis, Q, [task], is_forced=self.random.random() < 0.5)

    def join(self) -> None:
        """Enqueue a task of a group, and maybe another one that waits for the group."""
        group = self.client.group(self.random.choice("gh"))
        self.made.append(self.queue.enqueue("p", group=group.open(), **self.wishes()))
        if self.random.random() < 0.5:
            self.made.append(self.queue.enqueue("p", after=group))

    def close(self) -> None:
        self.client.group(self.random.choice("gh")).close()

    def reopen(self) -> None:
        protocol.reopen_group(self.redis, self.random.choice("gh"), time.time())

    def settle_groups(self) -> None:
        settle_groups_step(self.redis, time.time())

    def spawn(self) -> None:
        processor = self.processor()
        its, made = processor.task, uuid.uuid4().hex
        attempt = AttemptRef(Q, its.id, its.token, its.node)
        new = NewTask(made, Q, "p", {"spawned_by": its.id}, {})
        if protocol.spawn(self.redis, attempt, [new], time.time()) == [True]:
            self.made.append(made)

    def wishes(self) -> dict[str, Any]:
        return self.random.choice(
            [
                {},
                {},
                {"priority": 7},
                {"priority": -7},
                {"lock": "a_b %"},
                {"lock": ("c", 2), "priority": 7},
                {"resources": {"gpu": 1}},
            ]
        )

    def prioritise(self) -> None:
        self.queue.set_priority(self.any_task(), self.random.choice([-7, 0, 7]))

    def put_first(self) -> None:
        self.queue.put_first(self.any_task())

    def limit(self) -> None:
        self.queue.set_settings({"max_running": self.random.choice([None, 1, 2])})

    def pause(self) -> None:
        if self.random.random() < 0.2:
            self.queue.pause("me")

    def resume(self) -> None:
        self.queue.resume()

    def move(self) -> None:
        """To another queue and back, for here is where the listeners are."""
        task_id = self.any_task()
        self.queue.move(task_id, "elsewhere")
        assert audit(self.redis) == []
        self.client.get_queue("elsewhere").move(task_id, Q)
        self.tidy("elsewhere")

    def tidy(self, queue: str) -> list[str]:
        """Drop the lines in which nobody stands, as a listener does that looks for work; return the
        others.
        """
        heads = list(self.client.get_inspector().heads(queue))
        for head in heads:
            if not head.length:
                protocol.align_line(self.redis, queue, head.line)
        return [head.line for head in heads if head.length and not head.is_locked]

    def due(self) -> None:
        protocol.enqueue_due(self.redis, Q, time.time() + 100)

    def take(self) -> None:
        node = self.any_node()
        task = self.tasks[node]
        if task is not None and self.client.get_task(task.id).token == task.token:
            return
        popped, *_ = protocol.pop(
            self.redis, Q, node, self.nodes[node], next(iter(self.tidy(Q)), None)
        )
        if popped:
            token = uuid.uuid4().hex
            fields = protocol.reserve(
                self.redis, AttemptRef(Q, popped, token, node), self.nodes[node], time.time()
            )
            self.tasks[node] = None if fields is None else Task(popped, fields)

    def start(self) -> None:
        self.processor().start(self.random.randint(2, 9999))

    def complete(self) -> None:
        self.processor().complete({"a": 1})

    def fail(self) -> None:
        self.processor().fail(self.random.choice([ValueError("no"), "no"]))

    def release(self) -> None:
        self.processor().release()

    def progress(self) -> None:
        self.processor().progress("50 %")

    def confirm(self) -> None:
        processor = self.processor()
        if "cancel" in self.client.get_task(processor.task.id).fields:
            processor.confirm_cancel({})

    def cancel(self) -> None:
        self.queue.cancel(self.any_task(), "me", "why not")

    def requeue(self) -> None:
        self.queue.requeue(self.any_task())

    def delete(self) -> None:
        task_id = self.any_task()
        self.queue.delete_task(self.client.get_task(task_id))

    def leave(self) -> None:
        node = self.any_node()
        if protocol.deregister(self.redis, Q, node, self.nodes[node]):
            self.register(node)

    def beat(self) -> None:
        node = self.any_node()
        protocol.beat(
            self.redis,
            [Heartbeat(Q, node, self.nodes[node], self.random.randint(1, 99))],
            time.time(),
        )

    def order(self) -> None:
        protocol.order(self.redis, Q, self.any_node(), "drain", "me")

    def die(self) -> None:
        """Die, and be found dead: what had not started is in line again, what had started is
        adopted, or lost.
        """
        node, now = self.any_node(), time.time()
        instance = self.nodes.pop(node)
        (beat,) = self.redis.read(("HGET", keys.listener(Q, node), "beat"))
        protocol.fence(self.redis, Q, node, instance, beat, 9.25)
        self.tasks.pop(node)
        for task_id in self.redis.read(("LRANGE", keys.reserved(Q, node), 0, -1))[0]:
            protocol.recover(self.redis, Q, task_id, node, instance, now)
        assert audit(self.redis) == [] or not self.redis.read(("LLEN", keys.reserved(Q, node)))[0]
        for task_id in self.redis.read(("LRANGE", keys.reserved(Q, node), 0, -1))[0]:
            token, heir = self.client.get_task(task_id).token, self.any_node()
            if self.random.random() < 0.5:
                protocol.adopt(
                    self.redis, AttemptRef(Q, task_id, token, node), heir, self.nodes[heir], now
                )
            else:
                protocol.lose(
                    self.redis,
                    AttemptRef(Q, task_id, token, node),
                    instance,
                    Loss("lost"),
                    None,
                    now,
                )
            if self.random.random() < 0.5 and token:
                protocol.restore(
                    self.redis,
                    AttemptRef(Q, task_id, token, heir),
                    self.nodes[heir],
                    77,
                    {},
                    now,
                    now,
                )
        protocol.deregister(self.redis, Q, node, instance, is_dead=True)
        self.register(node)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_as_it_should_be_leaves_no_finding(client, redis, seed):
    bustle = Bustle(seed, client, redis)
    for number in range(600):
        done = bustle.step()

        assert audit(redis) == [], f"seed {seed}, step {number}: {done}"


# Beside 1.0.0


@pytest.fixture
def legacy(_installed, url, tmp_path):
    with Programs(url, tmp_path) as programs:
        programs.write(WORK)
        yield Legacy(url, programs)


LISTENER = """
listener = client.get_listener("video")
"""
RESERVE = (
    LISTENER
    + """
task = listener.listen()
"""
)
START = (
    RESERVE
    + """
processor = client.get_processor(task)
processor.start(os.getpid())
task = client.get_task(task.id)
processor = client.get_processor(task)
"""
)


@pytest.mark.parametrize(
    "code",
    [
        'queue = client.get_queue("video"); queue.enqueue("p"); queue.schedule("p", 4e9); queue.schedule("p", 1e9)',
        'queue = client.get_queue("video"); queue.schedule("p", time.time() + 0.01); time.sleep(0.02)\n'
        "queue.enqueue_due_tasks()",
        LISTENER,
        RESERVE,
        START,
        START + "processor.complete('r')",
        START + "processor.fail('e')",
        START
        + "processor.complete('r'); client.get_queue('video').delete_task(client.get_task(task.id))",
    ],
)
def test_what_1_0_0_does_is_no_finding(legacy, redis, client, code):
    legacy.run('client.get_queue("video").enqueue("p")')
    legacy.run(code)
    protocol.register(redis, "video", NODE, "i", {}, 1.0)
    popped, *_ = protocol.pop(redis, "video", NODE, "i")
    if popped:
        protocol.reserve(redis, AttemptRef("video", popped, "t", NODE), "i", 2.0)
        protocol.start(redis, AttemptRef("video", popped, "t", NODE), 99, 3.0)

    assert audit(redis) == []


def test_a_task_that_1_0_0_has_claimed_from_a_dead_listener_is_no_finding(legacy, redis):
    legacy.run('client.get_queue("video").enqueue("p")')
    legacy.run(RESERVE)

    (status,) = legacy.run(LISTENER + "say(listener.claim_orphan().status)")

    assert status == "reserved"
    assert audit(redis) == []


def test_the_documented_defects_of_1_0_0_are_found_and_repaired(legacy, redis, client):
    for _ in range(4):
        client.get_queue("video").enqueue("p")
    twice = START + "processor.complete('r'); processor.complete('r')"
    both_ends = START + "processor.complete('r'); processor.fail('e')"
    deleted = (
        START
        + "processor.complete('r'); client.get_queue('video').delete_task(client.get_task(task.id))"
    )
    stump = deleted + "; processor.complete('r')"
    second_listener = LISTENER + "client.get_listener('video')"
    for code in (twice, both_ends, deleted, stump, second_listener):
        legacy.run(code)

    found = audit(redis)

    assert codes(found) == ["both", "double", "misplaced", "no_hash", "score", "stump"]
    assert all(finding.fix for finding in found)
    assert repair_all(redis) == []
