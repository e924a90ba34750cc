"""`blueque acl`: print the rights of a role for a user of Redis; say what this user lacks."""

from __future__ import annotations

import click

from blueque.cli import printing
from blueque.cli.failure import FORBIDDEN, Failure
from blueque.cli.options import Invocation, text_options
from blueque.cli.printing import Column
from blueque.errors import RedisRefused

ROLES = ("producer", "listener", "scheduler", "operator", "admin", "viewer", "legacy")
_CHECK = "check"
_SHOWN = 6  # rules of a role in the list of all


@click.command()
@click.argument("role", nargs=-1, required=True, metavar="ROLE... | check [ROLE]")
@click.option("--user", metavar="NAME", help="Name of the user; default: blueque-ROLE.")
@click.option(
    "--redis",
    "server",
    type=click.Choice(("7.0", "6.2")),
    default="7.0",
    show_default=True,
    help="6.2: for a Redis before 7.0, which cannot limit a user to reading keys.",
)
@text_options
def acl(invocation: Invocation, role: tuple[str, ...], user: str | None, server: str) -> int:
    """Print the command that gives a user of Redis the rights of a role, or check which roles your user has.

    \b
    blueque acl listener | redis-cli
    redis-cli ACL SETUSER blueque-listener on '>PASSWORD'
    blueque acl producer operator --user web
    blueque acl check
    blueque acl check listener

    The user gets these rights and no others, and keeps its passwords. A new user is off and has no password: see the
    second line. With several roles it gets the rights of all.

    \b
    producer    enqueues, feeds, defines schedules, waits for results
    listener    blueque-listener
    scheduler   blueque-scheduler
    viewer      reads everything: status, ls, show, metrics, the page
    operator    also cancels, requeues, moves, pauses, deletes, archives
    admin       everything, also doctor
    legacy      programs of Blueque 1.0.0

    check tries each right in a transaction that it never executes, with the user in the address of Redis. The ACL LOG
    of Redis notes what is refused. With ROLE the exit code is 77 if something is missing.
    """
    is_check, wanted = role[0] == _CHECK, role[role[0] == _CHECK :]
    unknown = [name for name in wanted if name not in ROLES]
    if unknown:
        raise click.UsageError(f"{unknown[0]!r} is not a role: {', '.join(ROLES)}")
    if is_check and user is not None:
        raise click.UsageError("--user: check tests the user in the address of Redis")
    if is_check:
        return _check(invocation, wanted)
    from blueque.protocol import permissions  # here: --help does not need it

    name = user if user is not None else permissions.user_of(wanted)
    if not name or set(name) & set(" \t\n\r\0\"'"):
        raise click.UsageError("--user: a name has no spaces and no quotes")
    if name == "default":
        raise click.UsageError(
            "--user: default is the user of every connection without a name. With the rights of a role it could not manage "
            "Redis, and it may have no password. Choose another name"
        )
    click.echo(" ".join(["ACL", "SETUSER", name, *permissions.rules(wanted, server)]))
    return 0


def _check(invocation: Invocation, roles: tuple[str, ...]) -> int:
    from blueque.protocol import permissions  # here: --help does not need it

    redis = invocation.client().connections
    try:
        found = {role: permissions.lacking(redis, role) for role in roles or ROLES}
    except RedisRefused as error:
        if error.code != "NOPERM":
            raise
        advice = "Without it no right can be tried. To give this user a role: blueque acl ROLE --user NAME"
        raise Failure(FORBIDDEN, str(error), advice) from error
    most = _SHOWN if not roles else len(max(found.values(), key=len))
    printing.print_table(
        [Column("ROLE"), Column("LACKS", can_shrink=not roles)],
        [[role, _shown(rules, most)] for role, rules in found.items()],
    )
    return FORBIDDEN if roles and any(found.values()) else 0


def _shown(rules: list[str], most: int) -> str:
    more = f" and {len(rules) - most} more" if len(rules) > most else ""
    return " ".join(rules[:most]) + more or "nothing"
