"""Options that programs share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from blueque.cli.failure import CONFIGURATION, USAGE, Failure
from blueque.errors import InvalidInput
from blueque.model import units
from blueque.model.wrong_types import WrongTypes
from blueque.system.hosts import chosen_name
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.settings.contents import Config
    from blueque.text.redaction import Hide

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_JSON = "as_json"  # the name of --json
COMPLETE = "_BLUEQUE_COMPLETE"  # the variable with which a shell asks for its script, or for words


@dataclass
class Invocation:
    """The values of the options that every verb has; the `obj` of every click context."""

    url: str | None = None
    config_file: str | None = None
    is_debug: bool = False
    is_utc: bool = False
    as_json: bool = False
    by: str | None = None  # who gives orders; None: this user and host
    wrong_types: WrongTypes = field(default_factory=WrongTypes)

    @functools.cached_property
    def config(self) -> Config:
        """The content of blueque.toml. Raises ConfigRefused."""
        from blueque.settings.file import load  # here: --help does not need it

        return load(self.config_file)

    def address(self) -> tuple[str, str]:
        """Return the address of Redis and its origin."""
        if self.url:
            return self.url, "--redis-url"
        said = (self.config.redis_url, self.config.path or "") if self.config.redis_url else None
        return units.redis_url(otherwise=said)

    def hider(self, reveals: bool) -> Hide:
        """Return the function that hides secrets in parameters, or hides nothing."""
        from blueque.text import redaction  # here: --help does not need it

        return redaction.reveal if reveals else redaction.hider(self.config.redact)

    def serve(self, queue: str) -> str:
        """Return the command that starts a listener of the queue, as `hints.serve`."""
        from blueque.text import hints  # here: --help does not need it

        return hints.serve(queue, has_handler=self.config.has_handler(queue))

    def client(self, patience: float = 0.0) -> Client:
        """Return a client for the address.

        patience: as for Client; 0: raise at once if Redis does not answer.
        """
        from blueque.client import Client  # here: --help does not need it

        (url, origin), config = self.address(), self.config
        try:
            max_bytes = units.max_bytes(otherwise=config.max_bytes)
        except InvalidInput as error:
            raise Failure(CONFIGURATION, f"BLUEQUE_MAX_BYTES: {error}") from error
        try:
            config.of_clients()
            chosen_name()
        except InvalidInput as error:  # which names its variable
            raise Failure(CONFIGURATION, str(error)) from error
        try:
            client = Client(url, patience=patience, max_bytes=max_bytes, config=config)
        except InvalidInput as error:
            raise Failure(USAGE if self.url else CONFIGURATION, f"{origin}: {error}") from error
        client.connections.wrong_types = self.wrong_types
        return client


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


# For programs; their verbs inherit it.
WITH_SHORT_HELP = {"help_option_names": ["-h", "--help"]}


class _SharedOption(click.Option):
    """An option of a program and all its verbs. Only the help of the program explains it; --json is
    also in the help of each verb that prints JSON.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if ctx.parent is None or self.name == _JSON:
            return super().get_help_record(ctx)
        shared = (one for one in ctx.command.params if isinstance(one, _SharedOption))
        if next(one for one in shared if one.name != _JSON) is not self:
            return None
        return "Common options", f"See {ctx.find_root().info_name} --help."


def together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds all of these options, in this order."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(options):  # decorators apply from the last to the first
            command = option(command)
        return command

    return add


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:  # else the value given before the verb stays
            setattr(context.ensure_object(Invocation), name, value)

    return remember


def _set_color(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Set the colour of the context: True or False if asked for, None for the terminal to decide."""
    if value in ("always", "never"):
        context.color = value == "always"
    elif value == "auto" or (context.color is None and context.parent is None):
        is_forced = os.environ.get("FORCE_COLOR", "") not in ("", "0") and not os.environ.get(
            "NO_COLOR"
        )
        context.color = True if is_forced else None


def _refuse_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value or context.ensure_object(Invocation).as_json:
        raise click.UsageError("it takes no --json: leave it out")


def _shared(
    *names: str, callback: Callable[..., None], **attributes: Any
) -> Callable[[Decorated], Decorated]:
    return click.option(
        *names, cls=_SharedOption, expose_value=False, callback=callback, **attributes
    )


redis_url_option = _shared(
    "--redis-url",
    callback=_remember("url"),
    metavar="URL",
    help="Address of Redis; default: BLUEQUE_REDIS_URL, REDIS_URL, localhost.",
)
config_option = _shared(
    "--config", callback=_remember("config_file"), metavar="FILE", help="Path of blueque.toml."
)
debug_option = _shared(
    "--debug", callback=_remember("is_debug"), is_flag=True, help="Show tracebacks."
)
_json_option = _shared(
    *("--json", _JSON),
    callback=_remember("as_json"),
    is_flag=True,
    help="Print one JSON object instead of text.",
)
_no_json_option = _shared(*("--json", _JSON), callback=_refuse_json, is_flag=True, hidden=True)
_options_of_verbs = together(
    redis_url_option,
    config_option,
    debug_option,
    _shared(
        "--as",
        callback=_remember("by"),
        metavar="NAME",
        help="Name recorded for your changes; default USER@HOST.",
    ),
    _shared(
        "--utc",
        callback=_remember("is_utc"),
        is_flag=True,
        help="Show times in UTC, not in local time.",
    ),
    _shared(
        "--color",
        callback=_set_color,
        type=click.Choice(("auto", "always", "never")),
        help="Use colours; default: on a terminal, or as NO_COLOR and FORCE_COLOR say.",
    ),
)


def shared_options(command: Decorated) -> Decorated:
    """Add the options of every verb of `blueque`, before and after its name.

    Their values are in its first argument, an Invocation.
    """
    taking: Any = pass_invocation(command)
    return together(_json_option, _options_of_verbs)(taking)


def text_options(command: Decorated) -> Decorated:
    """Add the same to a verb that refuses --json: it prints no JSON, or nothing else."""
    taking: Any = pass_invocation(command)
    return together(_no_json_option, _options_of_verbs)(taking)


version_option = click.version_option(__version__, message="%(prog)s %(version)s")
reveal_option = click.option(
    "--reveal",
    "reveals",
    is_flag=True,
    help='Show values that are otherwise "[hidden]", such as passwords and tokens.',
)
yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
reason_option = click.option("--reason", metavar="TEXT", help="Reason to record.")
