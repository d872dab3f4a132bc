"""`hawk server`: the server of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn, TextIO

import click

from hawk.cli.context import App, note, pass_app
from hawk.errors import UsageError


@click.group(short_help="Run, start, stop or inspect the local server.")
def server() -> None:
    """The server of this machine. Commands start it when they need it; jobs outlive it."""


@server.command(short_help="Run it in the foreground.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen at; 0: any.  [default: HAWK_PORT, or any]"
)
@pass_app
def run(app: App, host: str, port: int | None) -> None:
    """Run the server in the foreground, until Ctrl-C."""
    port = app.settings.port if port is None else port
    os.execv(sys.executable, [sys.executable, "-m", "hawk.server", "--host", host, "--port", str(port)])  # noqa: S606


@server.command(short_help="Start it, if it does not run.")
@pass_app
def start(app: App) -> None:
    """Start the server in the background, if it does not run already, and print its address."""
    from hawk.cli import local_server

    _local_only(app)
    record = local_server.ensure(app.settings)
    click.echo(f"{record.url}  (process {record.pid}, version {record.version})")


@server.command(short_help="End it; jobs run on.")
@pass_app
def stop(app: App) -> None:
    """End the server. Jobs run on; the next command starts a server again, which adopts them."""
    from hawk.cli import local_server

    _local_only(app)
    record = local_server.stop(app.settings)
    if record is None:
        note("No local server runs.")
    else:
        note(f"Stopped the server at {record.url} (process {record.pid}). Jobs run on.")


@server.command(short_help="Say whether it runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_app
def status(app: App, as_json: bool) -> None:
    """Say whether the server runs, and where. Ends with 1 when it does not."""
    import json

    from hawk.cli import local_server

    _local_only(app)
    record = local_server.find(app.settings, timeout=5.0)
    if as_json:
        click.echo(json.dumps({"running": record is not None, **(record._asdict() if record else {})}))
    elif record is None:
        click.echo("not running")
    else:
        click.echo(
            f"{record.url}  (process {record.pid}, version {record.version}, since {record.started_at})"
        )
    raise click.exceptions.Exit(0 if record else 1)


@server.command(short_help="Rebuild the index from the run directories.")
@pass_app
def reindex(app: App) -> None:
    """Rebuild the database from the run directories, which are the truth. Safe while the server runs."""
    _without_server(app, "--reindex")


@server.command(short_help="Bring the database to this version.")
@pass_app
def migrate(app: App) -> None:
    """Bring the database (HAWK_DATABASE_URL) to this version of Hawk. A server that starts does it by itself, too."""
    _without_server(app, "--migrate")


@server.command(short_help="Prepare and check a namespace for it.")
@click.option(
    "--check", is_flag=True, help="Look at the namespace; ends with 1 when something needed is missing."
)
@click.option(
    "--secrets", is_flag=True, help="Print the Secrets that it needs, with fresh keys, for kubectl apply."
)
@click.option("--namespace", "-n", help="The namespace.  [default: HAWK_KUBE_NAMESPACE, or the kubeconfig's]")
@click.option(
    "--context", help="Context of the kubeconfig.  [default: HAWK_KUBE_CONTEXT, or the current one]"
)
@click.option("--image", help="With --check: the image that pods will have.  [default: HAWK_KUBE_IMAGE]")
@click.option(
    "--run",
    "run_pod",
    is_flag=True,
    help="With --check: also run a pod of the image for a moment, and remove it.",
)
@click.option("--json", "as_json", is_flag=True, help="With --check: print JSON.")
@click.option(
    "--bundled-database", is_flag=True, help="With --secrets: for the PostgreSQL of overlays/single-node."
)
@click.option(
    "--database-url",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="With --secrets: for a database of yours, whose URL this file holds; - is standard input.",
)
def deploy(
    check: bool,
    secrets: bool,
    namespace: str | None,
    context: str | None,
    image: str | None,
    run_pod: bool,
    as_json: bool,
    bundled_database: bool,
    database_url: TextIO | None,
) -> None:
    """Prepare a namespace of a Kubernetes cluster for the server, and check it before anything runs.

    \b
    hawk server deploy --secrets --bundled-database | kubectl create -n hawk -f -
    kubectl apply -k deploy/overlays/single-node
    hawk server deploy --check -n hawk
    """
    if check == secrets:
        raise UsageError("Say --check or --secrets.", remedy="hawk server deploy --check -n NAMESPACE")
    if secrets:
        from hawk.cli.deploy_secrets import manifest

        if bundled_database == (database_url is not None):
            raise UsageError("Say where the database is: --bundled-database, or --database-url FILE.")
        click.echo(manifest(database_url.read() if database_url is not None else None), nl=False)
        return
    from hawk.cli import deploy_check

    code = deploy_check.run(namespace, context, image, run_pod=run_pod, as_json=as_json)
    raise click.exceptions.Exit(code)


def _without_server(app: App, work: str) -> NoReturn:
    """Have it done in a process of its own, not by a request: a damaged index may keep the server from starting."""
    _local_only(app)
    command = [sys.executable, "-m", "hawk.server", work]
    raise click.exceptions.Exit(subprocess.run(command, check=False).returncode)


def _local_only(app: App) -> None:
    if not app.local:
        raise UsageError(
            f"HAWK_API_URL names the server at {app.settings.api_url}, which is not this machine's to start or stop.",
            remedy="Unset HAWK_API_URL.",
        )
