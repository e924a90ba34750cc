"""`blueque init`: write the files of deploy/ for systemd, Docker, Kubernetes or Slurm."""

from __future__ import annotations

from pathlib import Path

import click

from blueque.cli import printing
from blueque.cli.failure import CONFIGURATION, REFUSED, USAGE, Failure
from blueque.cli.options import debug_option

KINDS = ("systemd", "docker", "kubernetes", "slurm", "prometheus", "grafana", "redis")
# An installed package has a copy; in a checkout they are beside the package.
_PLACES = tuple(Path(__file__).parents[above] / "deploy" for above in (2, 3))


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    help="Directory to write to; default: one of that name here.",
)
@debug_option
def init(kind: str, directory: str | None) -> None:
    """Write files for systemd, Docker and so on, for you to read, change and install. It overwrites nothing.

    \b
    blueque init systemd
    blueque init kubernetes --dir manifests/blueque

    The comments in each file say what it is for, and what happens to running tasks when a listener has to stop. There are
    alerts for Prometheus, a dashboard for Grafana, and users for Redis.
    """
    source = next((place / kind for place in _PLACES if (place / kind).is_dir()), None)
    if source is None:
        advice = "They are in the directory deploy of the source tree."
        raise Failure(CONFIGURATION, "this installation does not have these files", advice)
    target = Path(directory if directory is not None else kind)
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    there = [str(target / path) for path in files if (target / path).exists()]
    if there:
        advice = "Nothing was written. Give another directory: --dir DIR"
        raise Failure(
            REFUSED, f"{', '.join(there[:3])}{', ...' if there[3:] else ''}: already exists", advice
        )
    for path in files:
        try:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with open(target / path, "x", encoding="utf-8") as new:
                new.write((source / path).read_text(encoding="utf-8"))
        except OSError as error:
            raise Failure(USAGE, f"cannot write {target / path}: {error.strerror}") from error
        click.echo(printing.clean(str(target / path)))
