"""``cauce up``: the embedded stack in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import structlog
import typer

from services.chassis.kernel.errors import CauceError


@contextmanager
def saying_faults() -> Iterator[None]:
    """A fault of the project ends the command in its own words; logs go to standard error meanwhile."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    except CauceError as error:
        typer.echo(f"{error.code}: {error.message}", err=True)
        if error.remedy is not None:
            typer.echo(f"  {error.remedy}", err=True)
        raise typer.Exit(1) from error


def up(
    data_dir: Annotated[
        Path, typer.Option(envvar="CAUCE_DATA_DIR", help="Folder that keeps the data; made if missing.")
    ] = Path(".cauce"),
    port_base: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_531,
            help="First of the ports: five, and one for each worker. Default: those of the last start, or free ones.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that turn files into chunks.")] = 1,
    kafka: Annotated[
        str | None,
        typer.Option(
            envvar="CAUCE_KAFKA_BOOTSTRAP",
            metavar="HOST:PORT",
            help="A broker that runs already; CAUCE_KAFKA_* say how to reach it. Default: one is started.",
        ),
    ] = None,
) -> None:
    """Run database, broker, services and workers here until Ctrl-C. Prints one line of JSON when all is ready."""
    # Here, because the other commands need neither the servers nor a database driver.
    from deploy.embedded.folder import StackFolder  # noqa: PLC0415
    from deploy.embedded.stack import Ports, cauce_stack, run  # noqa: PLC0415

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("deploy.embedded").setLevel(logging.INFO)
    folder = StackFolder(data_dir)
    with saying_faults(), folder.held():
        ports = Ports.choose(port_base, folder.remembered_port_base())
        stack = cauce_stack(folder, ports, workers, os.environ, kafka_bootstrap=kafka)
        status = asyncio.run(run(folder, ports.base, stack))
    raise typer.Exit(status)
