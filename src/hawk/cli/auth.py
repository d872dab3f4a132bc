"""`hawk auth`, `hawk login`, `hawk version`: who speaks to whom."""

from __future__ import annotations

import click

from hawk import __version__
from hawk.cli.context import App, note, pass_app
from hawk.errors import HawkError


@click.group(short_help="Access tokens.")
def auth() -> None:
    """Access tokens."""


@auth.command("access-token", short_help="Print a valid access token.")
@pass_app
def access_token(app: App) -> None:
    """Print a valid access token; never asks. Ends with 1 when there is none."""
    click.echo(app.token())


@click.command(short_help="Sign in, where a server asks for it.")
@pass_app
def login(app: App) -> None:
    """Sign in. The server of this machine needs none: its token is a file that only you can read."""
    if app.local:
        app.token()
        note(f"No sign-in is needed: the local server's token is {app.settings.token_file}.")
    elif app.settings.access_token:
        app.client.eval_sets(limit=1)
        note(f"No sign-in is needed: HAWK_ACCESS_TOKEN is accepted by {app.settings.api_url}.")
    else:
        app.token()
        note(f"No sign-in is needed: {app.settings.api_url} is the local server.")


@click.command(short_help="Print the versions of the command and of the server.")
@pass_app
def version(app: App) -> None:
    """Print the version of this command and of the server it would talk to. Starts no server."""
    from hawk.cli import local_server
    from hawk.client import HawkClient

    click.echo(f"hawk {__version__}")
    if app.settings.api_url is None:
        record = local_server.find(app.settings)
        click.echo(f"server {record.version} at {record.url}" if record else "server not running")
        return
    try:
        with HawkClient(app.settings.api_url, None, timeout=5.0) as client:
            click.echo(f"server {client.version()} at {app.settings.api_url}")
    except HawkError as ex:
        raise HawkError(ex.message, remedy="Check HAWK_API_URL.") from ex
