"""Options that programs share, and the types of their values: durations, sizes, times."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from blueque.cli.failure import CONFIGURATION, USAGE, Failure
from blueque.errors import ConfigRefused, InvalidInput
from blueque.model import units
from blueque.model.wrong_types import WrongTypes
from blueque.system.hosts import chosen_name, require_host_name
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.config.contents import Config
    from blueque.model.retry import Retry
    from blueque.text.redaction import Hide

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

COMPLETE = "_BLUEQUE_COMPLETE"  # the variable with which a shell asks for its script, or for words
LAST_SECOND = 253402300799.0  # of the year 9999; larger numbers are milliseconds


@dataclass
class Invocation:
    """The values of the options that every verb has; the `obj` of every click context."""

    url: str | None = None
    config_file: str | None = None
    is_debug: bool = False
    is_utc: bool = False
    wrong_types: WrongTypes = field(default_factory=WrongTypes)

    @functools.cached_property
    def config(self) -> Config:
        """The content of blueque.toml. A mistake in it ends the program."""
        from blueque.config.toml_file import load  # here: --help does without

        try:
            return load(self.config_file)
        except ConfigRefused as error:
            raise Failure(CONFIGURATION, str(error)) from error

    def address(self) -> tuple[str, str]:
        """Return the address of Redis and its origin."""
        if self.url:
            return self.url, "--redis-url"
        said = (self.config.redis_url, self.config.path or "") if self.config.redis_url else None
        return units.redis_url(otherwise=said)

    def hider(self, reveals: bool) -> Hide:
        """Return the function that hides secrets in parameters, or hides nothing."""
        from blueque.text import redaction  # here: --help does without

        return redaction.reveal if reveals else redaction.hider(self.config.redact)

    def serve(self, queue: str) -> str:
        """Return the command that starts a listener of the queue, as `hints.serve`."""
        from blueque.text import hints  # here: --help does without

        return hints.serve(queue, has_handler=self.config.has_handler(queue))

    def client(self, patience: float = 0.0) -> Client:
        """Return a client for the address.

        patience: as for Client; 0: raise at once if Redis does not answer.
        """
        from blueque.client import Client  # here: --help does without

        url, origin = self.address()
        try:
            max_bytes = units.max_bytes(otherwise=self.config.max_bytes)
        except InvalidInput as error:
            raise Failure(CONFIGURATION, f"BLUEQUE_MAX_BYTES: {error}") from error
        try:
            units.statistics_keep()
            chosen_name()
        except InvalidInput as error:  # which names its variable
            raise Failure(CONFIGURATION, str(error)) from error
        try:
            client = Client(url, patience=patience, max_bytes=max_bytes, config=self.config)
        except InvalidInput as error:
            raise Failure(USAGE if self.url else CONFIGURATION, f"{origin}: {error}") from error
        client.connections.wrong_types = self.wrong_types
        return client


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """Seconds, written as 90, 30s, 2h or 1d12h."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not isinstance(value, str):
            return float(value)
        try:
            return units.parse_duration(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """Bytes, written as 65536, 64KiB or 10MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not isinstance(value, str):
            return int(value)
        try:
            return units.parse_size(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class Room(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """Bytes, or a share of the disk below 1, written as 50GiB or 20%."""

    name = "room"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return units.parse_room(str(value))
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class HostName(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """The name of a host, as node ids have it."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return require_host_name(str(value))
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class LogLimit(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """Bytes, written as a size, with a lower bound."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return units.parse_log_limit(str(value))
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class Command(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A program and its arguments, as one text; no shell is involved."""

    name = "command"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        try:
            return value if isinstance(value, list) else units.parse_program(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class Policy(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A retry policy, written as 3 or {"max": 3, "backoff": 60}."""

    name = "policy"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Retry:
        from blueque.model.retry import Retry  # here: --help does without

        if isinstance(value, Retry):
            return value
        try:
            return Retry.from_text(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class Time(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """Unix seconds, written as such or as a time that `moments.parse_time` reads."""

    name = "time"

    def __init__(self, is_ahead: bool) -> None:
        self._is_ahead = is_ahead

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = self._parse(value, param, ctx)
        if not abs(seconds) <= LAST_SECOND:  # so that NaN is refused, too
            self.fail(
                f"{value!r} is after the year 9999: give seconds, not milliseconds", param, ctx
            )
        return seconds

    def _parse(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from blueque.text.moments import parse_time  # here: hardly ever needed

        try:
            return parse_time(value, time.time(), self._is_ahead)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


# For programs; their verbs inherit it.
WITH_SHORT_HELP = {"help_option_names": ["-h", "--help"]}
DURATION = Duration()
COMMAND = Command()
SIZE = Size()
POLICY = Policy()
TIME_TO_COME, PAST_TIME = Time(is_ahead=True), Time(is_ahead=False)


class _SharedOption(click.Option):
    """An option of a program and all its verbs. Only the help of the program explains it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if ctx.parent is None:
            return super().get_help_record(ctx)
        if (
            next(option for option in ctx.command.params if isinstance(option, _SharedOption))
            is not self
        ):
            return None
        return "Common options", f"See {ctx.find_root().info_name} --help."


class RenamedOption(click.Option):
    """An option with earlier names, which still work, and which no help shows."""

    def __init__(self, *arguments: Any, formerly: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        names = self.opts
        self.opts = [*names, *self.formerly]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names


def redis_url_option(command: Decorated) -> Decorated:
    """Add --redis-url."""
    return click.option(
        "--redis-url",
        cls=_SharedOption,
        metavar="URL",
        expose_value=False,
        callback=_remember("url"),
        help="Redis; default BLUEQUE_REDIS_URL, REDIS_URL, localhost.",
    )(command)


def config_option(command: Decorated) -> Decorated:
    """Add --config."""
    return click.option(
        "--config",
        cls=_SharedOption,
        metavar="FILE",
        expose_value=False,
        callback=_remember("config_file"),
        help="Another blueque.toml.",
    )(command)


def debug_option(command: Decorated) -> Decorated:
    """Add --debug."""
    return click.option(
        "--debug",
        cls=_SharedOption,
        is_flag=True,
        expose_value=False,
        callback=_remember("is_debug"),
        help="Show tracebacks.",
    )(command)


def utc_option(command: Decorated) -> Decorated:
    """Add --utc."""
    return click.option(
        "--utc",
        cls=_SharedOption,
        is_flag=True,
        expose_value=False,
        callback=_remember("is_utc"),
        help="Show times in UTC, not in local time.",
    )(command)


def color_option(command: Decorated) -> Decorated:
    """Add --color."""
    return click.option(
        "--color",
        cls=_SharedOption,
        type=click.Choice(("auto", "always", "never")),
        expose_value=False,
        callback=_set_color,
        help="Default: on a terminal; NO_COLOR, FORCE_COLOR.",
    )(command)


def _set_color(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Set the colour of the context: True or False if asked for, None for the terminal to decide."""
    if value in ("always", "never"):
        context.color = value == "always"
    elif value == "auto" or (context.color is None and context.parent is None):
        is_forced = os.environ.get("FORCE_COLOR", "") not in ("", "0") and not os.environ.get(
            "NO_COLOR"
        )
        context.color = True if is_forced else None


def shared_options(command: Decorated) -> Decorated:
    """Add the options that every verb of `blueque` takes, before and after its name."""
    return redis_url_option(config_option(debug_option(utc_option(color_option(command)))))


def json_option(command: Decorated) -> Decorated:
    """Add --json, as the parameter `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
    )(command)


def reveal_option(command: Decorated) -> Decorated:
    """Add --reveal, as the parameter `reveals`."""
    return click.option(
        "--reveal", "reveals", is_flag=True, help="Show secrets in parameters and context, too."
    )(command)


def yes_option(command: Decorated) -> Decorated:
    """Add --yes, as the parameter `is_sure`."""
    return click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")(command)


def dry_run_option(help: str) -> Callable[[Decorated], Decorated]:
    """Add --dry-run, as the parameter `dry_run`."""
    return click.option("--dry-run", is_flag=True, help=help)


def limit_options(grace: str | None = None) -> Callable[[Decorated], Decorated]:
    """Add the retry policy and the limits of a task, or the defaults of a listener.

    As the parameters retry, time_limit, stall_limit, memory_limit, grace, lead; None: not given.
    All but the first fit `limits.fields`. grace: the default of --grace, for the help.
    """
    options = [
        click.option(
            "--retry",
            type=POLICY,
            metavar="N|JSON",
            help="Run a failed task again: N times, or by a policy.",
        ),
        click.option(
            "--time-limit", type=DURATION, metavar="DURATION", help="End a task that runs longer."
        ),
        click.option(
            "--stall-limit",
            type=DURATION,
            metavar="DURATION",
            help="End a task that reports no progress for so long.",
        ),
        click.option(
            "--memory-limit",
            type=SIZE,
            metavar="SIZE",
            help="End a task whose processes use more memory: 8GiB.",
        ),
        click.option(
            "--grace",
            type=DURATION,
            metavar="DURATION",
            help="Time between SIGTERM and SIGKILL" + (f"; default {grace}." if grace else "."),
        ),
        click.option(
            "--lead",
            type=DURATION,
            metavar="DURATION",
            help="Send SIGUSR1 so long before a limit; it ends a program without a handler for it.",
        ),
    ]

    def add(command: Decorated) -> Decorated:
        for option in reversed(options):  # decorators apply from the last to the first
            command = option(command)
        return command

    return add


def version_option(command: Decorated) -> Decorated:
    """Add --version."""
    return click.version_option(__version__, message="%(prog)s %(version)s")(command)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:  # else the value given before the verb stays
            setattr(context.ensure_object(Invocation), name, value)

    return remember


def log_options(command: Decorated) -> Decorated:
    """Add --log-format and --log-level."""
    level = click.option(
        "--log-level",
        type=click.Choice(units.LOG_LEVELS),
        default=units.LOG_LEVEL,
        show_default=True,
        help="Leave out of the log what is less important.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(units.LOG_FORMATS),
        default=units.LOG_FORMATS[0],
        show_default=True,
        help="Format of the log on standard error: lines of text, or one JSON object on each line.",
    )
    return form(level(command))
