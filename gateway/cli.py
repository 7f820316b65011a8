"""The `compute-ledger` command. Each subcommand says what it does in its --help."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gateway.roles import Role

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

host = typer.Typer(help="The hosts of a distributed ledger: who they are.", no_args_is_help=True)
app.add_typer(host, name="host")

DATA = Path(os.environ.get("COMPUTE_LEDGER_DATA", "~/.local/share/compute-ledger")).expanduser()
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where all state is kept.")]

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="postgresql://… of a distributed ledger.",
        envvar="COMPUTE_LEDGER_STORE",
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option("--kafka", metavar="HOST:PORT", help="Kafka of a distributed ledger.", envvar="COMPUTE_LEDGER_KAFKA"),
]
ConfigFile = Annotated[
    list[Path] | None,
    typer.Option("--config-file", metavar="FILE", help="A file of oslo.config's form; repeatable."),
]


class DriverName(StrEnum):
    FAKE = "fake"
    TEST = "test"
    LIBVIRT = "libvirt"


def one_of(names: type[StrEnum]) -> dict[str, Any]:
    """What typer is told of an option that takes one of these: what it says by itself of others is not for operators."""

    def parse(given: str) -> StrEnum:
        if given not in list(names):
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(names)}")
        return names(given)

    return {"parser": parse, "metavar": "|".join(names)}


def number(least: int, most: int | None = None) -> dict[str, Any]:
    """Likewise, of one that takes a whole number."""
    words = f"of {least} or more" if most is None else f"from {least} to {most}"

    def parse(given: object) -> int:
        text = str(given)
        if not (text.isascii() and text.isdecimal()) or int(text) < least or (most is not None and int(text) > most):
            raise typer.BadParameter(f"{text!r} is not a whole number {words}")
        return int(text)

    return {"parser": parse, "metavar": "N"}


def given_words(context: typer.Context) -> list[str]:
    """The options that stand on the command line; the environment's are for every process, as a file's are."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(f"compute-ledger: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def fail_if_refused(error: Exception) -> None:
    """What is refused, and not a fault of ours, ends in one line."""
    from domain.errors import DomainError
    from gateway.refusals import REFUSALS  # what it names takes a while to import

    if isinstance(error, OSError) and error.strerror:
        fail(": ".join(filter(None, (error.filename and str(error.filename), error.strerror))))
    if isinstance(error, REFUSALS):
        fail(str(error))
    if isinstance(error, DomainError):
        fail(f"{error} ({error.code})")


@app.command()
def up(
    context: typer.Context,
    data: Data = DATA,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 takes a free one.")] = "127.0.0.1:8774",
    driver: Annotated[
        DriverName,
        typer.Option(
            **one_of(DriverName),
            help="fake: a simulated hypervisor; test: libvirt's own; libvirt: real guests in QEMU.",
        ),
    ] = DriverName.FAKE,
    hosts: Annotated[int, typer.Option(**number(1, 64), help="How many hosts an embedded ledger runs.")] = 1,
    libvirt_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Default: qemu:///system, or test:///default.")
    ] = None,
    config_file: ConfigFile = None,
    role: Annotated[
        list[Role] | None,
        typer.Option(**one_of(Role), help="A role of a distributed ledger; repeatable. None: all in one process."),
    ] = None,
    store: Store = None,
    kafka: Kafka = None,
    credential: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `host enroll` printed, for the role agent.")
    ] = None,
    gateway: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Where the role agent fetches payloads; repeatable.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
    ] = None,
) -> None:
    """Run a ledger: API, identity, images, network, scheduler and hosts in one process, all state under DIR.

    With --role: those roles of a distributed ledger, over PostgreSQL and Kafka. Prints `ready URL` on stdout once everything
    answers (`ready ROLES` for a process that serves no API). DIR/clouds.yaml holds the clouds `admin` and `demo`. Guests of
    this deployment always get a config drive.
    """
    from gateway import logs, settings
    from gateway.given import wrong_with_directory, wrong_with_option
    from gateway.listening import CannotListen, address_of, url_of
    from gateway.listening import listen as open_socket
    from gateway.up import serve, serve_roles

    logs.to_stderr()
    roles = frozenset(role or ())
    try:
        if not roles and (store or kafka or credential or gateway):
            raise settings.SettingsInvalid(
                "--store, --kafka (or COMPUTE_LEDGER_STORE, _KAFKA), --credential and --gateway go with --role"
            )
        for name in given_words(context) if roles else ():
            settings.refuse(f"--{name.replace('_', '-')}", wrong_with_option(name, roles))
        chosen = settings.load(config_file or [])
        settings.refuse(f"--data {data}", wrong_with_directory(data))
        operators = metrics or chosen.metrics.listen
        if operators:
            address_of(operators)
        serves = not roles or Role.GATEWAY in roles
        sock = open_socket(listen) if serves else None
        url = "" if sock is None else url_of(sock, "http" if settings.tls_options(chosen) is None else "https")
        options = settings.process_options(
            chosen, directory=data, url=url, driver=driver.value, hosts=hosts, libvirt_uri=libvirt_uri
        )
        if not roles:
            assert sock is not None
            serve(options, sock, operators)
        else:
            of_roles = settings.role_options(
                chosen, options, roles, store=store, kafka=kafka, credential=credential, gateways=gateway or ()
            )
            serve_roles(of_roles, sock, operators)
    except (settings.SettingsInvalid, CannotListen) as error:
        fail(str(error), 2)
    except Exception as error:
        fail_if_refused(error)
        raise


@app.command()
def events(
    data: Data = DATA,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is recorded from now on.")] = False,
    after: Annotated[int, typer.Option(**number(0), help="Only events after this position.")] = 0,
    instance: Annotated[str | None, typer.Option(metavar="ID", help="Only this server's.")] = None,
    limit: Annotated[int, typer.Option(**number(1), help="At most so many (without --follow).")] = 1000,
    store: Store = None,
    config_file: ConfigFile = None,
) -> None:
    """List recorded events, one line of JSON each, personal data included; works beside a running ledger."""
    from gateway import inspection

    with refusing(data, store, config_file) as storage:
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
            help="servers, instance_actions, flavors, keypairs, quotas, hypervisors, server_groups, usage; `all` for all."
        ),
    ],
    data: Data = DATA,
    store: Store = None,
    config_file: ConfigFile = None,
) -> None:
    """Build a projection again from the first event, beside the live one, then switch; readers see no pause."""
    from gateway import inspection

    with refusing(data, store, config_file) as storage:
        for name, applied, seconds in inspection.rebuild(data, storage, projection):
            typer.echo(f"{name}: {applied} events in {seconds:.2f} s")


@app.command()
def verify(data: Data = DATA, store: Store = None, config_file: ConfigFile = None) -> None:
    """Check the ledger: order, gaps, times, and that every record decodes. Exits 1 if anything is wrong."""
    from gateway import inspection

    with refusing(data, store, config_file) as storage:
        checked, wrong = inspection.verify(storage)
    for line in wrong:
        typer.echo(line, err=True)
    typer.echo(f"{checked} records checked, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(1)


@app.command()
def doctor(data: Data = DATA, store: Store = None, kafka: Kafka = None, config_file: ConfigFile = None) -> None:
    """Tell what is here, what is missing, and how to get it; of a distributed ledger, how it does. Exits 1 on a FAIL."""
    from gateway import doctor as checks
    from gateway import settings

    found_all = checks.examine(data)
    try:
        chosen = settings.load(config_file or [])
        if store or kafka or chosen.database.connection or chosen.kafka.bootstrap_servers:
            from gateway import doctor_distributed

            of_kafka = settings.kafka_options(chosen, kafka)
            if store or chosen.database.connection:
                found_all = doctor_distributed.examine(data, settings.store_options(chosen, data, store), of_kafka)
            else:  # as on a host, which has no store
                found_all = chain(found_all, doctor_distributed.brokers(of_kafka))
    except settings.SettingsInvalid as error:
        fail(str(error), 2)
    worst = 0
    for found in found_all:
        typer.echo(f"{found.mark} {found.what}: {found.said}")
        worst = max(worst, found.weight)
    if worst > 1:
        raise typer.Exit(1)


@app.command("sample-config")
def sample_config() -> None:
    """Print a configuration file with every option at its default."""
    from gateway import settings

    typer.echo(settings.sample(), nl=False)


@host.command("enroll")
def host_enroll(
    name: Annotated[str, typer.Argument(help="The host's name, as it will be shown.")],
    data: Data = DATA,
    store: Store = None,
    config_file: ConfigFile = None,
) -> None:
    """Give a host a key, and print the file to put on it. A host that has one gets another; the old one is refused then."""
    from gateway import enrollment

    with refusing(data, store, config_file, of_hosts=True, with_writer=True) as storage:
        typer.echo(enrollment.enroll(storage, name))


@host.command("revoke")
def host_revoke(
    name: Annotated[str, typer.Argument(help="The host's name.")],
    data: Data = DATA,
    store: Store = None,
    config_file: ConfigFile = None,
) -> None:
    """Refuse a host's key from now on: its reports, its heartbeats, and what it asks for."""
    from gateway import enrollment

    with refusing(data, store, config_file, of_hosts=True, with_writer=True) as storage:
        enrollment.revoke(storage, name)


@host.command("list")
def host_list(data: Data = DATA, store: Store = None, config_file: ConfigFile = None) -> None:
    """List the hosts that have or had a key, a line of JSON each."""
    from gateway import enrollment

    with refusing(data, store, config_file, of_hosts=True) as storage:
        for line in enrollment.listing(storage):
            typer.echo(line)


@contextmanager
def refusing(
    data: Path,
    store: str | None = None,
    config_file: list[Path] | None = None,
    *,
    of_hosts: bool = False,
    with_writer: bool = False,
) -> Iterator[Storage[Any]]:
    """The ledger under a directory, or in PostgreSQL, with one line instead of a traceback when it cannot be used; for what
    is `of_hosts` on other machines it has to be in PostgreSQL."""
    from commands.assembly import open_shared_storage, open_storage
    from gateway import settings

    try:
        chosen = settings.load(config_file or [])
        if store or chosen.database.connection:
            options = settings.store_options(chosen, data, store)
            storage: Storage[Any] = open_shared_storage(
                options.url, options.vault_key_file, "compute-ledger command", with_writer=with_writer
            )
        elif of_hosts:
            there_is_none = f"there is no store: {settings.STORE_IS_GIVEN}"
            fail(f"only a distributed ledger has hosts on other machines, and {there_is_none}", 2)
        elif not (data / "ledger.db").exists():
            fail(f"there is no ledger in {data}; where a distributed one is, say with {settings.STORE_IS_GIVEN}")
        else:
            storage = open_storage(data, with_writer=False)
        try:
            yield storage
        finally:
            storage.close()
    except settings.SettingsInvalid as error:
        fail(str(error), 2)
    except Exception as error:
        fail_if_refused(error)
        raise


def main() -> None:
    app()


if __name__ == "__main__":
    main()
