"""The `compute-ledger` command. Each subcommand says what it does in its --help."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from commands.assembly import Storage

app = typer.Typer(
    name="compute-ledger",
    help="An event-sourced compute control plane that speaks OpenStack Nova's API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # so that a mistake on the command line ends in one plain line
    context_settings={"help_option_names": ["-h", "--help"]},
)

DATA = Path(os.environ.get("COMPUTE_LEDGER_DATA", "~/.local/share/compute-ledger")).expanduser()
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where all state is kept.")]


class DriverName(StrEnum):
    FAKE = "fake"
    TEST = "test"
    LIBVIRT = "libvirt"


def fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(f"compute-ledger: {message}", err=True)
    raise typer.Exit(code)


@app.command()
def up(
    data: Data = DATA,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 takes a free one.")] = "127.0.0.1:8774",
    driver: Annotated[
        DriverName,
        typer.Option(help="fake: a simulated hypervisor; test: libvirt's own; libvirt: real guests in QEMU."),
    ] = DriverName.FAKE,
    hosts: Annotated[int, typer.Option(min=1, max=64, help="How many hosts this process runs.")] = 1,
    libvirt_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Default: qemu:///system, or test:///default.")
    ] = None,
    config_file: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A file of oslo.config's form; repeatable.")
    ] = None,
) -> None:
    """Run the ledger: API, identity, images, network, scheduler and hosts in one process, all state under DIR.

    Prints `ready URL` on stdout once everything answers. DIR/clouds.yaml holds the clouds `admin` and `demo`. Guests of
    this deployment always get a config drive.
    """
    from gateway import logs, settings
    from gateway.refusals import REFUSALS
    from gateway.up import CannotListen, serve, url_of
    from gateway.up import listen as open_socket

    logs.to_stderr()
    try:
        chosen = settings.load(config_file or [])
        sock = open_socket(listen)
        options = settings.embedded_options(
            chosen, directory=data, url=url_of(sock), driver=driver.value, hosts=hosts, libvirt_uri=libvirt_uri
        )
        serve(options, sock)
    except (settings.SettingsInvalid, CannotListen) as error:
        fail(str(error), 2)
    except REFUSALS as error:
        fail(str(error))


@app.command()
def events(
    data: Data = DATA,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is recorded from now on.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events after this position.")] = 0,
    instance: Annotated[str | None, typer.Option(metavar="ID", help="Only this server's.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many (without --follow).")] = 1000,
) -> None:
    """List recorded events, one line of JSON each, personal data included; works beside a running ledger."""
    from gateway import inspection

    with refusing(data) as storage:
        try:
            for line in inspection.events(storage, after=after, instance=instance, limit=limit, follow=follow):
                typer.echo(line)
        except (BrokenPipeError, KeyboardInterrupt):
            os._exit(0)


@app.command()
def rebuild(
    projection: Annotated[
        str,
        typer.Argument(
            help="servers, instance_actions, flavors, keypairs, quotas or hypervisors; `all` for every one."
        ),
    ],
    data: Data = DATA,
) -> None:
    """Build a projection again from the first event, beside the live one, then switch; readers see no pause."""
    from gateway import inspection

    with refusing(data) as storage:
        for name, applied, seconds in inspection.rebuild(data, storage, projection):
            typer.echo(f"{name}: {applied} events in {seconds:.2f} s")


@app.command()
def verify(data: Data = DATA) -> None:
    """Check the ledger: order, gaps, times, and that every record decodes. Exits 1 if anything is wrong."""
    from gateway import inspection

    with refusing(data) as storage:
        checked, wrong = inspection.verify(storage)
    for line in wrong:
        typer.echo(line, err=True)
    typer.echo(f"{checked} records checked, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(1)


@app.command()
def doctor(data: Data = DATA) -> None:
    """Tell what is here, what is missing, and how to get it."""
    from gateway import doctor as checks

    worst = 0
    for found in checks.examine(data):
        typer.echo(f"{found.mark} {found.what}: {found.said}")
        worst = max(worst, found.weight)
    if worst > 1:
        raise typer.Exit(1)


@app.command("sample-config")
def sample_config() -> None:
    """Print a configuration file with every option at its default."""
    from gateway import settings

    typer.echo(settings.sample(), nl=False)


@contextmanager
def refusing(data: Path) -> Iterator[Storage]:
    """The ledger under a directory, with one line instead of a traceback when it cannot be used."""
    from commands.assembly import open_storage
    from gateway.refusals import REFUSALS

    if not (data / "ledger.db").exists():
        fail(f"there is no ledger in {data}; `compute-ledger up` makes one")
    try:
        storage = open_storage(data, with_writer=False)
        try:
            yield storage
        finally:
            storage.close()
    except REFUSALS as error:
        fail(str(error))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
