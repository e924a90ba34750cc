"""SIGHUP: a child checks the configuration, then listener and scheduler start anew under their pids."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest
from handlers import pid_of
from running import ROOT, outcome, state_of, until

from blueque import Client
from blueque.system.process import start_ticks

WORK = """
    import os, time
    from pathlib import Path

    def run(task):
        os.write(os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND), f"{task.id}\\n".encode())
        while not Path("go").exists():
            time.sleep(0.005)
        return "done"
"""
# Has a program that replaces another wait before it has read a line of Blueque.
HOLD = """
    import os, time
    from pathlib import Path

    HOLD, HELD = Path(__file__).with_name("hold"), Path(__file__).with_name("held")
    if HOLD.exists() and not {"BLUEQUE_LISTENER_ANSWER_TO", "BLUEQUE_KEEPER"} & {*os.environ}:
        HELD.touch()
        while HOLD.exists():
            time.sleep(0.005)
"""


def begin(programs, queue):
    task_id = queue.enqueue("")
    until(lambda: task_id in ledger(programs), what="the task")
    return programs.client.get_task(task_id)


def ledger(programs):
    path = programs.directory / "ledger"
    return path.read_text().split() if path.exists() else []


def let_go(programs):
    (programs.directory / "go").touch()


def configure(programs, listener="", rest="", url=None):
    toml = programs.directory / "blueque.toml"
    toml.write_text(f'redis_url = "{url or programs.url}"\n{rest}\n[listener]\n{listener}\n')
    toml.chmod(0o600)


def start(programs, slots=1, **environ):
    """Start a listener that has all but its queue from blueque.toml."""
    environ = {"BLUEQUE_SPOOL": str(programs.directory / "spool"), **environ}
    listener = programs.started_as(["work"], "work", environ)
    return listener.ready(slots)


def reload(listener, times=1):
    """Send SIGHUP and wait until the program has replaced itself so many times in all."""
    (listener.send if times == 1 else listener.send_again)(signal.SIGHUP)
    until(lambda: len(listener.lines("replacing ")) == times, what="the exec")


def states(programs):
    """Return the state of each listener, by pid."""
    return {pid_of(node.id): node.state for node in programs.client.get_inspector().nodes()}


def drain(programs, pid):
    nodes = programs.client.get_inspector().nodes()
    (node,) = (node.id for node in nodes if pid_of(node.id) == pid)
    programs.client.get_listeners().drain(node)


class Window:
    """The time between the exec and the first line of the new program."""

    def __init__(self, programs):
        self._directory = programs.directory / "hook"
        self._directory.mkdir()
        programs.write(HOLD, "hook/sitecustomize.py")
        self.environ = {"PYTHONPATH": os.pathsep.join([str(self._directory), str(ROOT)])}

    def open(self, program):
        """Have the program replace itself, and wait until it is in between."""
        (self._directory / "hold").touch()
        program.send(signal.SIGHUP)
        until((self._directory / "held").exists, what="the exec")

    def close(self):
        (self._directory / "hold").unlink()


def test_no_signal_ends_a_listener_that_is_starting(programs, queue):
    programs.write("""
        import os, time
        from pathlib import Path

        Path("importing").touch()
        while not Path("go").exists():
            time.sleep(0.005)

        def run(task):
            return "done"
    """)
    listener = programs.listener("work:run", before=("env",), is_awaited=False)
    until((programs.directory / "importing").exists, what="the import of the handler")
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        listener.send(number)
    let_go(programs)
    for said in ("SIGHUP: checking", "SIGUSR1: the stacks", "SIGUSR2: taking nothing new"):
        listener.says(said)
    listener.ready()
    assert listener.stop() == 0


def test_idle_listeners_are_replaced_and_busy_ones_after_their_task(programs, queue):
    configure(programs, 'handler = "work:run"\nslots = 2\ntime_limit = "1h"')
    listener = start(programs, slots=2)
    slots, running = set(listener.slots()), begin(programs, queue)
    started = start_ticks(listener.pid)
    for times in (1, 2):  # the second one leaves the task alone, too
        configure(
            programs, f'handler = "work:run"\nslots = 2\ntime_limit = "{0.3 - times / 10:.1f}s"'
        )
        reload(listener, times)
        new = until(lambda old=slots: {*listener.slots()} - old, what="another idle listener")
        assert outcome(programs.client, queue.enqueue("")).error_type == "time_limit"
        slots = slots | new
    now = programs.client.get_task(running.id)
    assert (now.status, now.pid, now.node) == ("started", running.pid, running.node)
    assert start_ticks(listener.pid) == started  # the same process
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    until(
        lambda: len(listener.slots()) == 2 and pid_of(running.node) not in listener.slots(),
        what="two other listeners",
    )
    assert ledger(programs).count(running.id) == 1
    assert listener.stop() == 0
    until(lambda: programs.left() == [], what="that nothing is left")


def test_a_busy_listener_keeps_its_slot_although_the_registry_cannot_be_written(programs, queue):
    configure(programs, 'handler = "work:run"')
    listener = start(programs)
    running = begin(programs, queue)
    registry = programs.directory / "spool" / "listeners"
    shutil.rmtree(registry)
    registry.touch()
    reload(listener)
    until(lambda: len(listener.lines("blueque-listener 2")) == 2, what="the new program")
    listener.send(signal.SIGUSR1)
    listener.says(f"those of its listeners follow: pid={pid_of(running.node)}\n")
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    assert listener.stop() == 0


def test_tasks_have_the_environment_that_they_had_before(programs, queue):
    programs.write("""
        import os

        def run(task):
            return {name: value for name, value in os.environ.items() if task.id not in value}
    """)
    listener = programs.listener("work:run", before=("env", "-u", "BLUEQUE_HOST"))
    before = outcome(programs.client, queue.enqueue("")).result
    reload(listener)
    after = outcome(programs.client, queue.enqueue("")).result
    assert {**after, "BLUEQUE_NODE": before["BLUEQUE_NODE"]} == before
    assert listener.stop() == 0


def test_every_option_of_the_file_holds_from_then_on(programs, queue):
    configure(programs, 'handler = "work:run"\non_term = "drain"')
    listener = start(programs)
    running, (busy,) = begin(programs, queue), listener.slots()
    configure(programs, 'handler = "work:run"\nslots = 3\nlog_format = "json"')
    reload(listener)
    listener.ready(3)
    assert json.loads(listener.lines("blueque-listener 2")[-1])["level"] == "info"
    configure(programs, 'handler = "work:run"\nslots = 2\non_term = "stop"')
    listener.send_again(signal.SIGHUP)
    listener.says("replacing 3 listeners")
    until(lambda: len(listener.slots()) == 2 and busy in listener.slots(), what="two slots")
    assert programs.client.get_task(running.id).status == "started"
    assert listener.stop() == 0
    assert outcome(programs.client, running.id).error_type == "stopped"
    until(lambda: programs.left() == [], what="that nothing is left")


def test_another_redis_gets_the_new_tasks_and_the_first_one_the_end_of_what_runs(programs, queue):
    configure(programs, 'handler = "work:run"')
    listener = start(programs)
    running = begin(programs, queue)
    url = f"{programs.url.rpartition('/')[0]}/1"
    configure(programs, 'handler = "work:run"', url=url)
    reload(listener)
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    other = Client(url)
    assert outcome(other, other.get_queue("work").enqueue("")).result == "done"
    other.close()
    assert listener.stop() == 0


class Account:
    """A user of Redis whose password a test changes."""

    def __init__(self, programs, cli):
        self._url, self._cli = programs.url, cli

    def set(self, *rules):
        self._cli.execute_command("ACL", "SETUSER", "app", "on", "allkeys", "+@all", "&*", *rules)

    def disconnect(self):
        self._cli.execute_command("CLIENT", "KILL", "USER", "app")

    def refusals(self):
        return sum(int(entry["count"]) for entry in self._cli.acl_log())

    def address(self, password):
        return self._url.replace("redis://", f"redis://app:{password}@")


@pytest.fixture
def account(programs, cli):
    account = Account(programs, cli)
    account.set(">old")
    yield account
    cli.acl_deluser("app")


# A listener that is refused leaves after the lease.
OFTEN = {"BLUEQUE_BEAT": "0.1", "BLUEQUE_LEASE": "0.5"}


def test_running_tasks_are_reported_with_the_new_password_of_redis(programs, queue, account):
    work = 'handler = "work:run"\nslots = 2'
    configure(programs, work, url=account.address("old"))
    listener = start(programs, slots=2, **OFTEN)
    running, waits = [begin(programs, queue) for _ in range(2)], queue.enqueue("")
    configure(programs, work, url=account.address("new"))
    account.set("resetpass", ">new")
    account.disconnect()
    reload(listener)
    listener.says("leaving the task to the next listener")
    until(lambda: len(listener.lines("adopt ")) == 2, what="two adoptions")
    let_go(programs)
    for task in running:
        ended = outcome(programs.client, task.id)
        assert (ended.result, ended.pid, ended.attempt) == ("done", task.pid, 1)
    assert outcome(programs.client, waits).result == "done"
    assert len(ledger(programs)) == 3 and listener.stop() == 0


@pytest.mark.parametrize("on_term", ["drain", "leave"])
def test_a_listener_that_is_not_replaced_stays_with_its_task_while_redis_refuses_its_password(
    programs, queue, account, on_term
):
    work = f'handler = "work:run"\non_term = "{on_term}"'
    configure(programs, work, url=account.address("old"))
    listener = start(programs, **OFTEN)
    (slot,), running = listener.slots(), begin(programs, queue)
    account.set("resetpass", ">new")
    account.disconnect()
    listener.send(signal.SIGTERM)
    refused = account.refusals()
    until(lambda: account.refusals() > refused + 30, what="thirty tries, and so many leases")
    assert state_of(slot) in "SR" and "leaving the task" not in listener.log
    account.set(">old")
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done" and listener.wait() == 0


def test_a_young_listener_that_is_refused_when_it_starts_again_leaves_the_others_at_work(
    programs, queue, account
):
    configure(programs, 'handler = "work:run"\nslots = 2', url=account.address("old"))
    listener, running = start(programs, slots=2), begin(programs, queue)
    account.set("resetpass", ">new")  # who is connected stays so
    (idle,) = {*listener.slots()} - {pid_of(running.node)}
    os.kill(idle, signal.SIGKILL)
    listener.says("ended (exit code 77); starting another")
    account.set(">old")
    let_go(programs)
    listener.ready(2)
    assert outcome(programs.client, running.id).result == "done"
    assert "taking nothing new" not in listener.log and listener.stop() == 0


def test_a_release_is_entered_by_its_name_and_nothing_is_taken_once_its_directory_is_gone(
    programs, queue
):
    releases = [programs.directory / f"release{number}" for number in (1, 2)]
    for release in releases:
        release.mkdir()
        programs.write(f"def run(task): return {release.name!r}", f"{release.name}/work.py")
    current = programs.directory / "current"
    current.symlink_to(releases[0])
    listener = programs.listener("work:run", before=("env", "-C", str(current), f"PWD={current}"))
    assert outcome(programs.client, queue.enqueue("")).result == "release1"
    shutil.rmtree(releases[0])
    current.unlink()

    waits = [queue.enqueue("") for _ in range(3)]
    listener.says("the directory in which this listener was started is gone")
    until(lambda: "paused" in states(programs).values(), what="that others see it")
    listener.send(signal.SIGHUP)
    listener.says(f"cannot enter {current}: No such file or directory")
    current.symlink_to(releases[1])
    listener.send_again(signal.SIGHUP)

    assert [outcome(programs.client, task).result for task in waits] == ["release2"] * 3
    assert listener.stop() == 0


MISTAKES = {
    "syntax": ("slots = nonsense", "", "blueque.toml"),
    "spool": ('spool = "/proc/1/no"', "", "/proc/1/no"),
    "preload": ('preload = ["absent"]', "", "cannot preload absent: ModuleNotFoundError"),
    "handler": (
        "",
        '[queues.work]\nhandler = "work:absent"',
        "cannot import the handler work:absent",
    ),
    "nothing": ("", "", "queue 'work' has no handler"),
    "key": ("", "[queues.work]\nwieght = 1", "blueque.toml: queues.work.wieght: unknown key"),
}


def test_a_mistake_leaves_everything_as_it_is(programs, queue):
    configure(programs, f'handler = "work:run"\nspool = "{programs.directory}/spool"')
    started = start(programs, BLUEQUE_SPOOL="")
    slots, running = started.slots(), begin(programs, queue)
    refused = "cannot reload the configuration (exit code 78; the lines above say why)"
    for number, (name, (listener, rest, said)) in enumerate(MISTAKES.items(), 1):
        run, before = 'handler = "work:run"\n' if listener else "", len(started.log)
        configure(programs, run + listener, rest)
        started.send(signal.SIGHUP)
        until(lambda n=number: len(started.lines(refused)) == n, what=f"the refusal of {name}")
        assert said in started.log[before:], name
    assert "replacing" not in started.log and len(started.lines("blueque-listener 2")) == 1
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    assert outcome(programs.client, queue.enqueue("")).result == "done"
    assert started.slots() == slots and started.stop() == 0


def test_a_check_that_ends_well_without_an_answer_leaves_everything_as_it_is(programs, queue):
    programs.write("", "early.py")
    configure(programs, 'handler = "work:run"\npreload = ["early"]')
    listener = start(programs, PYTHONPATH=str(programs.directory))
    slots, running = listener.slots(), begin(programs, queue)
    programs.write("import os; os._exit(0)", "early.py")
    listener.send(signal.SIGHUP)
    listener.says("the check ended without an answer; nothing changes")
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    assert listener.slots() == slots and listener.stop() == 0


def test_a_new_spool_and_new_resources_wait_for_the_next_start(programs, queue):
    resources = "[listener.resources]\ngpu = "
    spool = f'handler = "work:run"\nspool = "{programs.directory}/'
    configure(programs, f'{spool}spool"', f"{resources}2")
    listener = start(programs, BLUEQUE_SPOOL="")
    running = begin(programs, queue)
    configure(programs, f'{spool}other"', f"{resources}3")
    reload(listener)
    for name in ("spool", "resources"):
        assert f"the new value of {name} applies after a restart of the listener" in listener.log
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    task = outcome(programs.client, queue.enqueue("", resources={"gpu": 2}))
    assert task.result == "done" and f"{programs.directory}/spool/" in task.fields["files"]
    assert listener.stop() == 0


def test_a_handler_that_cannot_be_imported_is_tried_again_at_the_next_one(programs, queue):
    listener = programs.listener("work:run")
    slots = listener.slots()
    programs.write("raise RuntimeError('half deployed')")
    listener.send(signal.SIGHUP)
    listener.says("nothing changes")
    assert "cannot import the handler work:run: RuntimeError: half deployed" in listener.log
    assert listener.slots() == slots and "replacing" not in listener.log
    programs.write(WORK)
    listener.send_again(signal.SIGHUP)
    listener.says("replacing 1 listener,")


def write_endless(programs):
    """Have the import of the handler wait for ever, after it has noted its process."""
    os.mkfifo(programs.directory / "never")
    programs.write("""
        import os
        from pathlib import Path

        Path("pid.new").write_text(str(os.getpid()))
        os.rename("pid.new", "pid")
        open("never").close()
    """)


def check_endlessly(programs, listener):
    """Send SIGHUP; return the process of the check that imports the handler."""
    pid = programs.directory / "pid"
    listener.send(signal.SIGHUP)
    until(pid.exists, what="the check")
    return int(pid.read_text())


def test_a_newer_one_ends_a_check_whose_import_never_ends_and_is_not_lost(programs, queue):
    listener = programs.listener("work:run", "--no-warm")
    write_endless(programs)
    checking = check_endlessly(programs, listener)
    programs.write(WORK)
    listener.send(signal.SIGHUP)  # however soon
    listener.says("ending the check that is still running, to begin a new one")
    listener.says("replacing 1 listener,")
    until(lambda: not state_of(checking), what="the end of the first check")
    assert "nothing changes" not in listener.log
    let_go(programs)
    assert outcome(programs.client, queue.enqueue("")).result == "done"
    assert listener.stop() == 0
    until(lambda: programs.left() == [], what="that nothing is left")


def test_sigterm_ends_a_check_whose_import_never_ends(programs, queue):
    listener = programs.listener("work:run", "--no-warm")
    running = begin(programs, queue)
    write_endless(programs)
    checking = check_endlessly(programs, listener)
    listener.send(signal.SIGTERM)
    until(lambda: not state_of(checking), what="the end of the check")
    assert "nothing changes" not in listener.log
    let_go(programs)
    assert listener.wait() == 0
    assert outcome(programs.client, running.id).result == "done"


def test_a_check_whose_import_never_ends_ends_with_the_listener(programs):
    listener = programs.listener("work:run", "--no-warm")
    write_endless(programs)
    checking = check_endlessly(programs, listener)
    listener.send(signal.SIGKILL)
    until(lambda: not state_of(checking), what="the end of the check")


def test_sigterm_leaves_a_task_behind_its_listener_also_after_a_reload(programs, queue):
    listener = programs.listener("work:run", slots=2, on_term="leave")
    running = begin(programs, queue)
    reload(listener)
    assert listener.stop() == 0
    until(lambda: programs.left() != [], what="the listener that is left behind")
    other = programs.listener("work:run", slots=1, is_awaited=False)
    other.says("found 1 listener of a former master with a running task")
    let_go(programs)
    task = outcome(programs.client, running.id)
    assert (task.result, task.pid, task.node) == ("done", running.pid, running.node)
    other.ready()
    assert outcome(programs.client, queue.enqueue("")).result == "done"


def test_sigterm_in_the_moment_in_which_the_check_ends_is_obeyed_at_once(programs, queue):
    late = """
        import os, signal
        from blueque.node.master import Master

        become = Master._become_new_program

        def become_late(self, reload):
            os.kill(os.getpid(), signal.SIGTERM)
            become(self, reload)

        Master._become_new_program = become_late
    """
    (programs.directory / "hook").mkdir()
    programs.write(late, "hook/sitecustomize.py")
    path = os.pathsep.join([str(programs.directory / "hook"), str(ROOT)])
    listener = programs.listener("work:run", on_term="leave", environ={"PYTHONPATH": path})
    running = begin(programs, queue)
    listener.send(signal.SIGHUP)
    assert listener.wait() == 0  # though its task runs
    assert "replacing" not in listener.log and "SIGTERM" in listener.log
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"


def test_a_pause_by_a_signal_lasts(programs, queue):
    def states():
        return [(node.state, node.order_by) for node in programs.client.get_inspector().nodes()]

    listener = programs.listener("work:run")
    (slot,) = listener.slots()
    listener.send(signal.SIGUSR2)
    until(lambda: states() == [("paused", "a signal")], what="a listener that is paused")
    reload(listener)
    until(lambda: listener.slots() not in ([], [slot]), what="another listener")
    until(lambda: states() == [("paused", "a signal")], what="another listener that is paused")
    listener.send(signal.SIGUSR2)
    listener.says("SIGUSR2: taking tasks again")
    let_go(programs)
    assert outcome(programs.client, queue.enqueue("")).result == "done"


def test_all_slots_are_there_again_whatever_has_been_drained_before(programs, queue):
    configure(programs, 'handler = "work:run"\nbeat = "0.2s"\nslots = 3')
    listener = start(programs, slots=3)
    running = begin(programs, queue)
    idle = next(pid for pid in listener.slots() if pid != pid_of(running.node))
    drain(programs, idle)
    listener.says(f"listener pid={idle} has been drained")
    drain(programs, pid_of(running.node))
    until(lambda: len(listener.lines("told to drain")) == 2, what="a busy listener that drains")
    configure(programs, 'handler = "work:run"\nbeat = "0.2s"\nslots = 2')
    for times in (1, 2):  # the second one does not change the number
        reload(listener, times)
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    until(lambda: list(states(programs).values()) == ["up", "up"], what="two listeners")
    assert len(listener.slots()) == 2
    assert listener.stop() == 0


def test_max_runtime_counts_from_the_first_start(programs):
    master = programs.script("""
        import logging, sys, time
        from blueque.node.master import Master, Options
        from blueque.node.reload import Kept

        logging.basicConfig()
        kept = Kept(time.monotonic() - 61)
        sys.exit(Master(lambda master: 0, Options(1, "drain", 60), kept=kept).run())
    """)
    assert master.wait() == 0
    assert "--max-runtime is over" in master.log and "starting another" not in master.log


# Signals that come while one program replaces the other


def test_a_task_that_ends_in_the_window_is_reported(programs, queue):
    window = Window(programs)
    listener = programs.listener("work:run", environ=window.environ)
    running = begin(programs, queue)
    window.open(listener)
    let_go(programs)
    assert outcome(programs.client, running.id).result == "done"
    window.close()
    listener.says("replacing 1 listener,")
    assert outcome(programs.client, queue.enqueue("")).result == "done"
    assert listener.stop() == 0


def test_a_listener_that_dies_in_the_window_is_replaced_and_its_task_adopted(programs, queue):
    window = Window(programs)
    listener = programs.listener("work:run", "--beat", "0.2s", environ=window.environ)
    running = begin(programs, queue)
    window.open(listener)
    os.kill(pid_of(running.node), signal.SIGKILL)
    until(lambda: state_of(pid_of(running.node)) == "Z", what="its end")
    window.close()
    until(
        lambda: programs.client.get_task(running.id).node not in (None, running.node),
        what="the adoption",
    )
    let_go(programs)
    task = outcome(programs.client, running.id)
    assert (task.result, task.pid, ledger(programs)) == ("done", running.pid, [running.id])
    assert listener.stop() == 0


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([signal.SIGINT], "SIGINT: taking nothing new"),
        ([signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM], "SIGTERM: "),
    ],
    ids=["int", "all"],
)
def test_no_signal_to_a_listener_in_the_window_is_lost(programs, queue, numbers, said):
    window = Window(programs)
    listener = programs.listener("work:run", environ=window.environ)
    running = begin(programs, queue)
    window.open(listener)
    for number in numbers:
        listener.send(number)
    window.close()
    listener.says(said)
    for number in numbers:  # in any order
        listener.says(f"{signal.Signals(number).name}: ")
    let_go(programs)
    assert listener.wait() == 0
    assert outcome(programs.client, running.id).result == "done"
    until(lambda: programs.left() == [], what="that nothing is left")


def test_a_signal_that_pauses_in_the_window_is_heard(programs, queue):
    window = Window(programs)
    listener = programs.listener("work:run", environ=window.environ)
    window.open(listener)
    listener.send(signal.SIGUSR2)
    window.close()
    listener.says("SIGUSR2: taking nothing new until the next SIGUSR2")
    until(
        lambda: [node.state for node in programs.client.get_inspector().nodes()] == ["paused"],
        what="a listener that is paused",
    )


def test_sigterm_to_a_scheduler_in_the_window_ends_it(programs):
    window = Window(programs)
    scheduler = programs.scheduler(environ=window.environ)
    scheduler.says("blueque-scheduler")
    window.open(scheduler)
    scheduler.send(signal.SIGTERM)
    window.close()
    assert scheduler.wait() == 0
    assert len(scheduler.lines("blueque-scheduler 2")) == 2


# The scheduler


def test_a_scheduler_starts_anew_with_its_configuration_unless_that_has_a_mistake(programs):
    toml = programs.directory / "blueque.toml"
    toml.write_text("")
    scheduler = programs.scheduler()
    scheduler.says("blueque-scheduler")
    started = start_ticks(scheduler.pid)
    toml.write_text("retention = nonsense\n")
    scheduler.send_again(signal.SIGHUP)
    scheduler.says("nothing changes")
    assert "blueque.toml" in scheduler.log and len(scheduler.lines("blueque-scheduler 2")) == 1
    toml.write_text('[scheduler]\nlog_format = "json"\n')
    scheduler.send_again(signal.SIGHUP)
    until(lambda: len(scheduler.lines("blueque-scheduler 2")) == 2, what="the exec")
    assert json.loads(scheduler.lines("blueque-scheduler 2")[1])["level"] == "info"
    assert start_ticks(scheduler.pid) == started  # the same process
    assert scheduler.stop() == 0
