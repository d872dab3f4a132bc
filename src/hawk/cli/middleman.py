"""`hawk middleman`: the proxy between workers and model providers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hawk.cli.context import App, note, on_terminal, pass_app
from hawk.errors import UsageError

if TYPE_CHECKING:
    from hawk.config.settings import Settings

REFRESH = 1.0
"""Seconds between two pictures of `status -f`."""


@click.group(short_help="Look into the proxy to model providers, and set its keys.")
def middleman() -> None:
    """The proxy between workers and model providers: it holds the keys, shares the limits, counts the cost.

    It starts with the first job that needs it.
    """


@middleman.command(short_help="Show limits, queues, cost and what waits longest.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option("-f", "--follow", is_flag=True, help="Show it again every second, until Ctrl-C.")
@pass_app
def status(app: App, as_json: bool, follow: bool) -> None:
    """Show, for each model: the limit, what is in flight and waits, by job; refusals, latency, cost and breaker.

    Then the jobs with what they have spent, and the open requests that have waited longest, with the reason.
    """
    import json

    from hawk.cli.middleman_link import Link
    from hawk.cli.middleman_text import report

    link = Link(app.settings)
    while True:
        document = link.get("/admin/status")
        if as_json:
            click.echo(json.dumps(document, indent=None if follow else 2))
        else:
            if follow and on_terminal():
                click.clear()
            click.echo(report(document, columns=_columns()))
        if not follow:
            return
        time.sleep(REFRESH)


_config = click.argument("config", type=click.Path(path_type=Path))
_wait = click.option(
    "--wait/--detach", "wait", default=True, help="Follow the job to its end (default), or not."
)
_name = click.option("--name", help="Id of the eval set; what is not valid as an id begins one.")


@middleman.command(short_help="Run an eval set and keep every answer of its models.")
@_config
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cassette; what it holds stays.  [default: cassette.jsonl in the run directory]",
)
@_name
@_wait
@pass_app
def record(app: App, config: Path, output: Path | None, name: str | None, wait: bool) -> None:
    """Run the eval set of CONFIG with its models, and record their answers: `middleman: {record: …}`, for once."""
    _run_with(app, config, name, wait, {"record": True if output is None else str(output.absolute())})


@middleman.command(short_help="Run an eval set with answers that were recorded.")
@_config
@click.argument("cassette", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--speed", type=click.FloatRange(min=0), default=0.0, help="1: pauses as recorded; 0, the default: none."
)
@_name
@_wait
@pass_app
def replay(app: App, config: Path, cassette: Path, speed: float, name: str | None, wait: bool) -> None:
    """Run the eval set of CONFIG without any provider: every answer comes from CASSETTE, or is a miss that says so."""
    _run_with(app, config, name, wait, {"replay": str(cassette.absolute()), "replay_speed": speed})


def _run_with(app: App, config: Path, name: str | None, wait: bool, options: dict[str, Any]) -> None:
    from hawk.cli.eval_set import submit
    from hawk.cli.submission import prepare

    submission = prepare(config, name=name, runs=None, secrets=(), secrets_files=())
    if submission.config is None:
        raise UsageError("A script can't be recorded or replayed.", remedy="Write its eval set as a config.")
    said = {k: v for k, v in (submission.config.get("middleman") or {}).items() if k in ("budget", "models")}
    for warning in submission.warnings:
        note(f"Warning: {warning}")
    body = submission.body()
    submit(
        app, {**body, "eval_set_config": {**submission.config, "middleman": {**said, **options}}}, wait=wait
    )


@middleman.command(short_help="Run it in the foreground.")
@click.option("--host", help="Address to listen at.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen at; 0: any.  [default: any]")
@click.option(
    "--config", type=click.Path(dir_okay=False), help="Settings, instead of middleman.yaml in HAWK_HOME."
)
@click.option("--database-url", help="PostgreSQL that several of them share limits and budgets through.")
def serve(host: str | None, port: int | None, config: str | None, database_url: str | None) -> None:
    """Run it by itself, until Ctrl-C: for others than this machine's user, or several behind one address.

    A job may then bring no addresses of its own along, unless the settings say job_upstreams.
    """
    if config is not None:
        os.environ["HAWK_MIDDLEMAN_CONFIG"] = os.path.abspath(config)  # noqa: PTH100  # links stay as they are
    arguments = [sys.executable, "-m", "hawk.middleman"]
    for option, value in (("--host", host), ("--port", port), ("--database-url", database_url)):
        if value is not None:
            arguments += [option, str(value)]
    os.execv(sys.executable, arguments)  # noqa: S606


@middleman.command(short_help="Read settings, keys and prices again.")
@pass_app
def reload(app: App) -> None:
    """Read settings, keys and prices again, without dropping a request.

    What is wrong with them is said, and the old ones stay in force.
    """
    from hawk.cli.middleman_link import Link

    counts = Link(app.settings).post("/admin/reload", {})
    click.echo(
        "Reloaded: " + ", ".join(f"{counts.get(n, '?')} {n}" for n in ("providers", "models", "keys")) + "."
    )


@middleman.command(short_help="List models, who may use them and what they cost.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-a", "--all", "every", is_flag=True, help="Models of providers without a key, too.")
@pass_app
def models(app: App, as_json: bool, every: bool) -> None:
    """List the models with a price or an entry in the settings; others of the same providers work, too."""
    import msgspec

    from hawk.cli.middleman_text import model_table

    infos = [info for info in _catalog(app.settings).models() if every or info.reachable]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(infos), indent=2).decode())
    elif infos:
        click.echo(model_table(infos, columns=_columns()))
    else:
        note("No provider has a key yet: hawk middleman keys set PROVIDER. --all shows what there could be.")


@middleman.command(short_help="List prices, or bring them up to date.")
@click.option(
    "--update",
    type=click.File("r", encoding="utf-8"),
    help="Take the prices of this file; - is standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@pass_app
def prices(app: App, update: Any, as_json: bool) -> None:
    """List prices in dollars per million tokens, by Inspect's name of the model.

    A file for --update has `models: {NAME: {input: …, output: …}}`, or is LiteLLM's
    model_prices_and_context_window.json. It replaces the one before.
    """
    import msgspec

    from hawk.cli.middleman_link import told_to_reload
    from hawk.cli.middleman_text import price_table
    from hawk.middleman.pricelist import parse_prices, save_prices

    if update is not None:
        given = parse_prices(update.read(), getattr(update, "name", "prices"))
        path = save_prices(app.settings.home, given)
        click.echo(f"{len(given.models)} prices in {path}. {told_to_reload(app.settings)}")
        return
    known = _catalog(app.settings).prices()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(known), indent=2).decode())
    else:
        click.echo(price_table(known["models"], columns=_columns()))
        note(f"Dollars per million tokens, as of {known['as_of']}.")


@middleman.group(short_help="Set, list and remove providers' keys.")
def keys() -> None:
    """Keys of model providers. They are kept in HAWK_HOME, readable by you alone, and never shown."""


@keys.command("set", short_help="Store a provider's key.")
@click.argument("provider")
@click.option(
    "--account", default="default", show_default=True, help="Name of the account, where there are several."
)
@click.option("--from-env", metavar="VAR", help="Take the key from this environment variable.")
@pass_app
def set_key(app: App, provider: str, account: str, from_env: str | None) -> None:
    """Store a provider's key, asked for without an echo, or read from standard input.

    The key is no argument: those can be seen by everybody on this machine.
    """
    from hawk.cli.middleman_link import told_to_reload
    from hawk.config.providers import PROVIDERS, provider_called
    from hawk.config.suggest import nearest

    known = provider_called(provider)
    if known is not None and known.name not in PROVIDERS and (near := nearest(provider, PROVIDERS)):
        note(
            f"Hawk knows no provider {provider!r}; {near!r} is one. The key is kept for {provider!r} as written."
        )
    stored = _key_store(app.settings).set(provider, _value(provider, from_env), account)
    shown = f" …{stored.tail}" if stored.tail else ""
    note(
        f"Stored the key{shown} of {stored.provider}/{stored.account} ({stored.source}). {told_to_reload(app.settings)}"
    )


@keys.command("list", short_help="List keys by their last four characters.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@pass_app
def list_keys(app: App, as_json: bool) -> None:
    """List the keys that there are, and where each is kept, by their last four characters.

    Keys in your environment are in use only where the middleman was started with them.
    """
    import msgspec

    from hawk.cli.middleman_text import key_table

    found = _key_store(app.settings).list()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    elif found:
        click.echo(key_table(found, columns=_columns()))
    else:
        note("No key is stored, and none is in the environment: hawk middleman keys set PROVIDER.")


@keys.command("remove", short_help="Forget a stored key.")
@click.argument("provider")
@click.option("--account", default="default", show_default=True, help="Name of the account.")
@pass_app
def remove_key(app: App, provider: str, account: str) -> None:
    """Forget a stored key. Requests that are under way end with it."""
    from hawk.cli.middleman_link import told_to_reload

    _key_store(app.settings).remove(provider, account)
    note(f"Removed the key of {provider}/{account}. {told_to_reload(app.settings)}")


def _value(provider: str, from_env: str | None) -> str:
    """The key, from where it is nobody else's to see. Raises: UsageError when there is none."""
    if from_env is not None:
        value = os.environ.get(from_env, "")
        if not value.strip():
            raise UsageError(
                f"The variable {from_env} is not set.", remedy="Export it, or leave --from-env out."
            )
        return value
    if sys.stdin.isatty():
        return str(click.prompt(f"Key of {provider}", hide_input=True, err=True))
    value = sys.stdin.readline()
    if not value.strip():
        raise UsageError("Standard input holds no key.", remedy=f"hawk middleman keys set {provider} < FILE")
    return value


def _key_store(settings: Settings) -> Any:
    from hawk.middleman.keys import KeyStore

    return KeyStore(settings.home, os.environ)


def _catalog(settings: Settings) -> Any:
    from hawk.middleman.catalog import load_catalog

    return load_catalog(settings.home, os.environ, _key_store(settings))


def _columns() -> int | None:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
