"""blueque.protocol.transaction: conflicts, refusals, lost answers; against a real Redis."""

from __future__ import annotations

import pytest
from faults import Fault

from blueque import Client, Contended, OutcomeUnknown, RedisAway, RedisRefused
from blueque.connection.redis import Look
from blueque.protocol.transaction import MAX_CONFLICTS, Answer, Change, transact

ADD = Look(["list"], [("LRANGE", "list", 0, -1)])
AFTER = Look(["a"], [("GET", "a")])


def add(held):
    """Decide to put x in the list once; recognise that it is there."""
    return Answer("there already") if "x" in held else Change([("RPUSH", "list", "x")], "added")


@pytest.fixture
def through(proxy):
    """Return the connections of a client that goes through the proxy, connected already."""
    clients = []

    def connect(patience):
        clients.append(Client(proxy.url, patience=patience))
        clients[0].connections.read(("PING",))
        return clients[0].connections

    yield connect
    clients[0].close()


def test_a_transaction_looks_decides_and_changes(redis, state):
    def decide(*replies):
        assert replies == ([], None)
        return Change(
            [("SET", "b", 1), ("INCRBY", "b", 2), ("RPUSH", "list", "x")], lambda replies: replies
        )

    outcome = transact(
        redis, "try", Look(["list"], [("LRANGE", "list", 0, -1), ("GET", "b")]), decide
    )

    assert outcome == ["OK", 3, 1]
    assert state() == {"b": "3", "list": ["x"]}


def test_an_answer_changes_nothing_and_watches_nothing_any_more(redis, cli, state):
    assert transact(redis, "try", Look(["a"], [("GET", "a")]), lambda a: Answer("done")) == "done"

    assert state() == {}
    cli.set("a", "changed")
    assert redis.connection().exchange([("MULTI",), ("PING",), ("EXEC",)])[-1] == ["PONG"]


def test_a_refusal_by_decide_comes_out_and_watches_nothing_any_more(redis, cli, state):
    with pytest.raises(LookupError):
        transact(redis, "try", Look(["a"], [("GET", "a")]), refuse)

    assert state() == {}
    cli.set("a", "changed")
    assert redis.connection().exchange([("MULTI",), ("PING",), ("EXEC",)])[-1] == ["PONG"]


def test_a_key_that_changes_before_the_exec_is_looked_at_again(redis, cli, state):
    seen = []

    def decide(a):
        seen.append(a)
        if len(seen) < 3:
            cli.set("a", len(seen))
        return Change([("SET", "b", f"after {a}")], "changed")

    assert transact(redis, "try", Look(["a"], [("GET", "a")]), decide) == "changed"
    assert seen == [None, "1", "2"]
    assert state() == {"a": "2", "b": "after 2"}


@pytest.mark.parametrize(
    "command", [("DEL", "a"), ("FLUSHALL",), ("EXPIRE", "a", 0), ("HSET", "a", "f", 1)], ids=repr
)
def test_a_watched_key_counts_as_changed_whatever_was_done_to_it(redis, cli, command):
    cli.hset("a", "f", 1)
    seen = []

    def decide(fields):
        seen.append(fields)
        if len(seen) == 1:
            cli.execute_command(*command)
        return Change([("SET", "b", 1)], None)

    transact(redis, "try", Look(["a"], [("HGETALL", "a")]), decide)
    assert len(seen) == 2


def test_a_key_that_changes_every_time_ends_in_contended_and_writes_nothing(redis, cli, state):
    looks = []

    def decide(a):
        looks.append(a)
        cli.incr("a")
        return Change([("SET", "b", 1)], None)

    with pytest.raises(Contended, match="crowd") as refusal:
        transact(redis, "crowd", Look(["a"], [("GET", "a")]), decide)

    assert (refusal.value.operation, refusal.value.attempts) == ("crowd", MAX_CONFLICTS)
    assert len(looks) == MAX_CONFLICTS
    assert state() == {"a": str(MAX_CONFLICTS)}


def test_an_error_inside_the_exec_does_not_pass_unseen(redis, cli):
    cli.set("text", "not a list")
    change = Change([("LPUSH", "text", "x"), ("SET", "b", 1)], "changed")

    with pytest.raises(RedisRefused, match="WRONGTYPE") as refusal:
        transact(redis, "try", Look(["a"], [("GET", "a")]), lambda a: change)

    assert refusal.value.code == "WRONGTYPE"
    assert cli.get("b") == "1", "Redis does not roll back, and nobody may think so"


def test_an_error_in_the_look_comes_out_and_watches_nothing_any_more(redis, cli, state):
    cli.set("a", "not a list")
    before = state()

    with pytest.raises(RedisRefused) as refusal:
        transact(
            redis,
            "try",
            Look(["a"], [("LRANGE", "a", 0, -1)]),
            lambda a: Change([("SET", "b", 1)], None),
        )

    assert refusal.value.code == "WRONGTYPE"
    assert state() == before
    cli.set("a", "changed")
    assert redis.connection().exchange([("MULTI",), ("PING",), ("EXEC",)])[-1] == ["PONG"]


@pytest.mark.parametrize("wrong", [("NOSUCH", "b"), ("SET", "b")], ids=repr)
def test_a_command_that_redis_refuses_to_queue_keeps_all_the_others_from_being_done(
    redis, state, wrong
):
    with pytest.raises(RedisRefused) as refusal:
        transact(
            redis,
            "try",
            Look(["a"], [("GET", "a")]),
            lambda a: Change([("SET", "a", 1), wrong], None),
        )

    assert refusal.value.code == "ERR", "the reason, not the EXECABORT that follows it"
    assert state() == {}
    assert transact(redis, "try", ADD, add) == "added", "the connection can go on"


@pytest.mark.parametrize("forbidden", ["set", "watch", "get", "multi", "exec"])
def test_a_command_that_the_user_may_not_run_keeps_all_the_others_from_being_done(
    redis, cli, state, forbidden
):
    cli.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", f"-{forbidden}")
    redis.connection().exchange([("AUTH", "reader", "any")])
    try:
        with pytest.raises(RedisRefused) as refusal:
            transact(
                redis,
                "try",
                Look(["a"], [("GET", "a")]),
                lambda a: Change([("RPUSH", "list", "x"), ("SET", "a", 1)], None),
            )
        assert redis.read(("ECHO", "the connection can go on")) == ["the connection can go on"]
    finally:
        cli.execute_command("ACL", "DELUSER", "reader")

    assert refusal.value.code == "NOPERM"
    assert state() == {}


def refuse(a):
    raise LookupError(a)


def test_a_look_sent_ahead_saves_the_next_transaction_its_own(proxy, through, state):
    redis = through(patience=0)
    transact(redis, "try", ADD, add, next_look=AFTER)
    before = proxy.writes

    assert (
        transact(redis, "next", AFTER, lambda a: Change([("SET", "b", f"after {a}")], "changed"))
        == "changed"
    )
    assert proxy.writes - before == 1
    assert state() == {"list": ["x"], "b": "after None"}


def test_a_key_that_changes_after_a_look_sent_ahead_is_looked_at_again(redis, cli, state):
    transact(redis, "try", ADD, add, next_look=AFTER)
    cli.set("a", "changed")

    transact(redis, "next", AFTER, lambda a: Change([("SET", "b", f"after {a}")], None))

    assert state() == {"list": ["x"], "a": "changed", "b": "after changed"}


def test_a_look_sent_ahead_is_not_taken_for_another(redis, cli):
    transact(redis, "try", ADD, add, next_look=AFTER)
    seen = []

    def decide(*replies):
        seen.extend(replies)
        return Change([("SET", "b", 1)], None)

    transact(redis, "next", Look(AFTER.watch, [("EXISTS", "a"), ("GET", "a")]), decide)
    transact(redis, "next but one", AFTER, decide)
    assert seen == [0, None, None]


def test_a_look_sent_ahead_that_is_given_up_leaves_nothing_watched(proxy, through, cli):
    redis = through(patience=0)
    transact(redis, "try", ADD, add, next_look=AFTER)
    cli.set("a", "changed")
    before = proxy.writes

    change = Change([("SET", "b", 1)], "changed")
    assert transact(redis, "another", Look(["b"], []), lambda: change) == "changed"
    assert proxy.writes - before == 2, "its first EXEC was refused"


def test_a_look_sent_ahead_with_what_is_refused_leaves_nothing_watched(proxy, through, cli):
    redis = through(patience=0)
    with pytest.raises(RedisRefused, match="NOSUCH"):
        transact(redis, "try", ADD, lambda held: Change([("NOSUCH",)], None), next_look=AFTER)
    cli.set("a", "changed")
    before = proxy.writes

    change = Change([("SET", "b", 1)], "changed")
    assert transact(redis, "another", Look(["b"], []), lambda: change) == "changed"
    assert proxy.writes - before == 2, "its first EXEC was refused"


def test_a_read_of_one_instant_is_answered_although_a_look_sent_ahead_is_out_of_date(redis, cli):
    transact(redis, "try", ADD, add, next_look=AFTER)
    cli.set("a", "changed")

    assert redis.read(("MULTI",), ("GET", "a"), ("EXEC",))[-1] == ["changed"]
    assert redis.look_ahead is None


def test_no_answer_is_given_from_a_look_sent_ahead_for_that_may_be_hours_old(redis, cli):
    transact(redis, "try", ADD, add, next_look=AFTER)
    cli.set("a", "changed")

    assert transact(redis, "next", AFTER, Answer) == "changed"


def test_nothing_is_refused_because_of_a_look_sent_ahead_for_that_may_be_hours_old(redis, cli):
    transact(redis, "try", ADD, add, next_look=AFTER)
    cli.set("a", "changed")

    with pytest.raises(LookupError, match="changed"):
        transact(redis, "next", AFTER, refuse)


def test_an_error_in_a_look_sent_ahead_is_that_of_the_next_transaction(redis, cli):
    cli.rpush("a", "not a string")

    assert transact(redis, "try", ADD, add, next_look=AFTER) == "added"
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        transact(redis, "next", AFTER, Answer)


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_look_is_looked_at_again(proxy, through, fault, state):
    redis = through(patience=5)
    proxy.arm(fault, having=b"WATCH")

    assert transact(redis, "try", ADD, add) == "added"
    assert proxy.has_struck
    proxy.release()
    assert state() == {"list": ["x"]}


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(Fault.CUT_BEFORE, "added"), (Fault.CUT_AFTER, "there already"), (Fault.HOLD, "added")],
)
def test_an_unknown_outcome_is_settled_by_looking_again(proxy, through, fault, outcome, state):
    redis = through(patience=5)
    proxy.arm(fault, having=b"RPUSH")

    assert transact(redis, "try", ADD, add) == outcome
    assert proxy.has_struck
    assert state() == {"list": ["x"]}


def test_an_exec_that_arrives_late_is_refused_by_redis(proxy, through, state):
    redis = through(patience=5)
    proxy.arm(Fault.HOLD, having=b"RPUSH")
    transact(redis, "try", ADD, add)

    assert proxy.release() == [b"+OK\r\n+QUEUED\r\n*-1\r\n"]
    assert state() == {"list": ["x"]}


@pytest.mark.parametrize("fault", Fault)
def test_a_change_that_cannot_recognise_itself_is_not_repeated(proxy, through, fault, state):
    redis = through(patience=5)
    proxy.arm(fault, having=b"RPUSH")

    with pytest.raises(OutcomeUnknown, match="try"):
        transact(redis, "try", ADD, add, repeatable=False)

    assert state() == ({"list": ["x"]} if fault is Fault.CUT_AFTER else {})


def test_a_change_that_cannot_recognise_itself_may_lose_its_look(proxy, through, state):
    redis = through(patience=5)
    proxy.arm(Fault.CUT_AFTER, having=b"WATCH")

    assert transact(redis, "try", ADD, add, repeatable=False) == "added"
    assert state() == {"list": ["x"]}


@pytest.mark.parametrize("fault", Fault)
def test_without_patience_a_lost_look_means_that_nothing_was_written(proxy, through, fault, state):
    redis = through(patience=0)
    proxy.arm(fault, having=b"WATCH")

    with pytest.raises(RedisAway) as away:
        transact(redis, "try", ADD, add)

    assert not isinstance(away.value, OutcomeUnknown)
    assert state() == {}


@pytest.mark.parametrize("fault", Fault)
def test_without_patience_a_lost_exec_means_that_the_outcome_is_unknown(proxy, through, fault):
    redis = through(patience=0)
    proxy.arm(fault, having=b"RPUSH")

    with pytest.raises(OutcomeUnknown) as unknown:
        transact(redis, "try", ADD._replace(task="t1"), add)

    assert unknown.value.task_id == "t1"
    assert transact(redis, "try", ADD, add) in ("added", "there already"), (
        "the same call settles it"
    )


def test_an_outcome_stays_unknown_when_redis_does_not_come_back(proxy, through):
    redis = through(patience=0.2)
    proxy.arm(Fault.CUT_AFTER, having=b"RPUSH")

    def add_and_shut_the_door(held):
        proxy.stop_listening()
        return add(held)

    with pytest.raises(OutcomeUnknown, match="may or may not have been done"):
        transact(redis, "try", ADD, add_and_shut_the_door)


def test_an_answer_that_came_is_returned_even_if_the_unwatch_is_lost(proxy, through):
    redis = through(patience=5)
    proxy.arm(Fault.CUT_AFTER, having=b"UNWATCH")

    assert transact(redis, "try", ADD, lambda held: Answer("seen")) == "seen"
