"""Options that can also be set by a variable or in blueque.toml: --max-runtime is
BLUEQUE_MAX_RUNTIME.

The command line overrules a variable, and a variable the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from blueque.cli.failure import CONFIGURATION, Failure

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class Program(click.Command):
    """A command whose options can be set by environment variables."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for option in settings_of(self):
            option.envvar = variable(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            option = error.param
            name = option.name if option is not None else None
            if (
                isinstance(option, click.Option)
                and name
                and ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT
            ):
                raise Failure(CONFIGURATION, f"{variable(option)}: {error.message}") from error
            raise


def settings_of(command: click.Command) -> list[click.Option]:
    """Return the options that can be set elsewhere: all but those of every program."""
    return [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.expose_value
    ]


def variable(option: click.Option) -> str:
    """Return the environment variable of an option."""
    return f"BLUEQUE_{str(option.name).upper()}"


def given(context: click.Context) -> dict[str, Any]:
    """Return the values that options and variables set, by the key of the file."""
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) in _GIVEN
    }


def nearest(context: click.Context, file: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the values of alternative keys from the first source that sets any of them."""
    for source in _GIVEN:
        if found := {
            key: context.params[key] for key in keys if context.get_parameter_source(key) is source
        }:
            return found
    return {key: file[key] for key in keys if key in file}


def refuse_both(context: click.Context, first: str, second: str, advice: str) -> None:
    """Refuse two alternatives that are both on the command line, or both in variables."""
    sources = {context.get_parameter_source(key) for key in (first, second)}
    options = {option.name: option for option in settings_of(context.command)}
    if sources == {ParameterSource.COMMANDLINE}:
        raise click.UsageError(
            f"{options[first].opts[0]} and {options[second].opts[0]} are both given: {advice}"
        )
    if sources == {ParameterSource.ENVIRONMENT}:
        names = f"{variable(options[first])} and {variable(options[second])}"
        raise Failure(CONFIGURATION, f"{names} are both set: {advice}")
