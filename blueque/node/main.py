"""The program that `blueque-listener` runs by exec after it has read its arguments.

The exec drops the modules that only the command line needs, so each fork copies less memory. The
master, its listeners and their task processes run this program. The `Choices` are a file in memory;
an environment variable has the number of its descriptor.
"""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import json
import logging
import os
import sys
import time
from contextlib import suppress

from blueque.connection.address import hide_password
from blueque.model import units
from blueque.node.choices import CHOICES, Choices, handlers_text, queues_text
from blueque.node.master import Master, Options
from blueque.node.refusal import refusal_of
from blueque.node.registry import Registry
from blueque.node.reload import Check, Kept, Reload, note_directory, replace_program
from blueque.node.slot_program import preload, run_slot
from blueque.node.slots import EXIT_CONFIGURATION, Callbacks
from blueque.spool.spool import Spool
from blueque.system import hosts, process
from blueque.system.log_format import log_to_stderr
from blueque.system.systemd import Notifier
from blueque.task_process import keeper, package_copy
from blueque.task_process.import_ahead import import_for_daemon
from blueque.version import __version__

log = logging.getLogger("blueque")

NAME = "blueque-master"  # for `ps -o comm`


def main() -> int:
    """Run the master with the choices of `blueque-listener`; return the exit status."""
    choices = Choices.from_json(process.read_from_memory(int(os.environ.pop(CHOICES))))
    process.fill_standard_streams()
    process.set_name(NAME)
    kept = Kept.take()
    notifier = Notifier()
    log_to_stderr(choices.settings["log_format"], choices.settings["log_level"])
    for name in choices.environ.keys() - {hosts.VARIABLE}:  # the program before us may have kept it
        os.environ.pop(name, None)
    if not os.environ.get(hosts.VARIABLE):  # empty: there was none at the start
        os.environ.pop(hosts.VARIABLE, None)
    if (host := choices.settings["host"]) is not None:
        os.environ[hosts.VARIABLE] = host  # for all that we fork, and for what tasks start
    # before a directory of the user's may have modules of the same names
    import_for_daemon(choices.redis_url)
    note_directory()
    sys.path.insert(0, os.getcwd())  # the handler is found where we were started, wherever tasks go
    # A program that replaces another was checked by it.
    refusal = refusal_of(choices) if kept is None else None
    if refusal is not None:
        log.error("%s", refusal)
        return EXIT_CONFIGURATION
    _say_what(choices)
    try:
        package = _warm_up(choices)
    except OSError as error:  # it is just being replaced, or no more files may be open
        log.error("cannot copy the files of Blueque: %s", error)
        return EXIT_CONFIGURATION
    return _master(choices, package, notifier, kept).run()


def _say_what(choices: Choices) -> None:
    """Log the arguments and settings of the master."""
    slots = choices.settings["slots"]
    log.info(
        "blueque-listener %s: %s, %s, %d slot%s, %s (%s), spool %s, %shost %s, pid %d",
        __version__,
        queues_text(choices),
        handlers_text(choices),
        slots,
        "" if slots == 1 else "s",
        hide_password(choices.redis_url),
        choices.url_source,
        choices.spool,
        f"configuration {choices.config}, " if choices.config else "",
        hosts.host_name(),
        os.getpid(),
    )
    for remark in choices.remarks:
        log.info("%s", remark)
    if not hosts.names_one_machine(hosts.host_name()) and choices.settings["host"] is None:
        log.warning(
            "host %s: other machines may have the same name; give this one its own with --host",
            hosts.host_name(),
        )


def _master(choices: Choices, package: int, notifier: Notifier, kept: Kept | None) -> Master:
    spool, registry = Spool(choices.spool, choices.max_bytes), Registry(choices.spool)
    check = Check(
        [sys.executable, "-P", "-m", "blueque.cli.listener", *sys.argv[1:]], choices.environ
    )
    return Master(
        functools.partial(run_slot, choices, _orders(choices, package)),
        Options(*(choices.settings[key] for key in Options._fields)),
        Callbacks(
            chore=functools.partial(_prune, choices),
            left_behind=functools.partial(registry.left_behind, choices.queues),
            reap=spool.reap,
            on_listener_end=spool.remove_room,
        ),
        notifier,
        Reload(check, functools.partial(_replace_program, choices, notifier, check)),
        kept,
    )


def _replace_program(choices: Choices, notifier: Notifier, check: Check, kept: Kept) -> None:
    """Become a master with the checked configuration; return only if that fails.

    Spool and resources stay the same, because running attempts have their files and units there.
    """
    checked = check.read()
    check.forget()
    if checked is None:
        log.error(
            "cannot reload the configuration: the check ended without an answer; nothing changes"
        )
        return
    for name in ("spool", "resources"):
        value = choices.settings[name]
        if checked["settings"].get(name) != value:
            log.warning("SIGHUP: the new value of %s applies after a restart of the listener", name)
            checked["settings"][name] = value
    with suppress(FileNotFoundError):  # with the directory, a spool in it is gone
        if os.path.realpath(os.environ["PWD"]) != os.getcwd():
            checked["settings"]["spool"] = os.path.abspath(choices.spool)
    memory = process.keep_in_memory(json.dumps(checked))
    environment = {
        **os.environ,
        **notifier.environ,
        hosts.VARIABLE: choices.environ.get(hosts.VARIABLE, ""),
        CHOICES: str(memory),
        **kept.environ,
    }
    arguments = [sys.executable, "-P", "-m", "blueque.node.main", *sys.argv[1:]]
    replace_program(arguments, environment, [memory])
    os.close(memory)


def check(choices: Choices) -> str | None:
    """In a child of a running master: return why a new master could not run, or None."""
    sys.path.insert(0, os.getcwd())
    units.connect_as_listener(choices.job.redis_url)
    return refusal_of(choices, is_first=False) or preload(choices)


def _orders(choices: Choices, package: int) -> keeper.Orders:
    """Return the orders for the keeper of a slot, without what only the slot knows.

    If a slot made them itself, it would touch, and so copy, each page that has a name of a module.
    """
    return keeper.Orders(
        list(choices.job),
        choices.spool,
        0,
        -1,
        package,
        choices.settings["preload"],
        sys.path,
        " ".join(sorted(sys.modules)),
        sys.argv,
    )


def _warm_up(choices: Choices) -> int:
    """Do once what every task process would repeat, without running user code.

    Return the descriptor of a copy of the package, for late imports in everything that we fork.
    Raises OSError.
    """
    package = package_copy.make()
    sys.meta_path.insert(0, package_copy.PackageCopy(package))
    for name in choices.handlers.values():
        if name.run is not None:
            importlib.machinery.PathFinder.find_spec(name.run.partition(".")[0].partition(":")[0])
    gc.collect()
    gc.freeze()  # else a collection in a task process copies all that we share with it
    return package


def _prune(choices: Choices) -> None:
    spool = Spool(choices.spool, choices.max_bytes)
    os.nice(10)  # there may be many files to look at
    try:
        with spool.only_pruner() as is_only:
            if not is_only:
                return
            removed = spool.prune(time.time() - choices.settings["keep"])
            shrunk = spool.shrink(choices.settings["spool_limit"])
    except OSError as error:
        log.warning("cannot prune spool %s: %s", choices.spool, error.strerror)
    else:
        if removed or shrunk.removed:
            log.info(
                "prune spool=%s attempts=%d bytes=%d",
                choices.spool,
                removed + shrunk.removed,
                shrunk.size,
            )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before there is a master
        sys.exit(130)
