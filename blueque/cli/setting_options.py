"""Options of programs, made from the table of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.options import Decorated, together
from blueque.cli.values import Value
from blueque.errors import InvalidInput
from blueque.settings.resolver import Layer, Sources, require_one_handler
from blueque.settings.table import TABLES, rows

if TYPE_CHECKING:
    from blueque.settings.contents import Config
    from blueque.settings.setting import Setting


def setting_options(table: str) -> Callable[[Decorated], Decorated]:
    """Add an option for each setting of a table, as the parameter of its key."""
    return together(*(option_of(setting) for setting in TABLES[table]))


def option_of(setting: Setting, has_default: bool = True) -> Callable[[Decorated], Decorated]:
    """Add the option of a setting. Its value is as `Kind.read` returns it; None: it is not given.

    has_default: its help names the default.
    """
    kind, default = setting.kind, setting.get_default_text() if has_default else ""
    text = f"{setting.text} Default: {default}." if default else setting.text
    if kind.is_flag:
        *short, long = setting.flags
        return click.option(
            setting.key, *short, f"{long}/--no-{long.removeprefix('--')}", default=None, help=text
        )
    if kind.is_list:
        return click.option(
            setting.key,
            *setting.flags,
            multiple=True,
            metavar=kind.metavar,
            help=text,
            callback=_read_words(setting),
        )
    return click.option(
        setting.key,
        *setting.flags,
        type=Value(kind.metavar.lower(), kind.from_text),
        metavar=kind.metavar,
        help=text,
    )


def sources_of(context: click.Context, config: Config, table: str) -> Sources:
    """Return the values of options, variables and blueque.toml. Ends the program if one is wrong."""
    options = {key: context.params[key] for key in rows(table)}
    given = {key: value for key, value in options.items() if value is not None}
    flags = {key: rows(table)[key].flags[-1] for key in given}
    try:
        require_one_handler(Layer("option", given, flags), "given")
    except InvalidInput as error:
        raise click.UsageError(str(error), context) from error
    return checked(config, [table], given)


def checked(
    config: Config, tables: Sequence[str], options: Mapping[str, Any] = MappingProxyType({})
) -> Sources:
    """Return the values of options, of the variables of these tables, and of blueque.toml.

    Ends the program if a variable is wrong.
    """
    try:
        return Sources(config, options, tables)
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _read_words(setting: Setting) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def read(context: click.Context, parameter: click.Parameter, words: Iterable[str]) -> Any:
        if not words:
            return None
        try:
            return setting.kind.from_words([*words])
        except InvalidInput as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return read
