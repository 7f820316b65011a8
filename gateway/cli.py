"""The `compute-ledger` command. Each subcommand says what it does in its --help."""

from __future__ import annotations

import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    name="compute-ledger",
    help="An event-sourced compute control plane that speaks OpenStack Nova's API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
        list[Path] | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="oslo.config; repeatable.")
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


def main() -> None:
    logging.raiseExceptions = False
    app()


if __name__ == "__main__":
    sys.exit(main())
