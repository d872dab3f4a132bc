"""`hawk sandbox`: layers built ahead of time, what lives and what is left, and both cleaned up."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hawk.cli.context import App, complete_image, note, pass_app
from hawk.cli.sandbox_shell import shell
from hawk.cli.text import clean, plural, size
from hawk.errors import UsageError

USUAL_CONFIG = "sandbox.yaml"
USUAL_AGE = "7d"  # a layer that nobody has used for a week is likely to belong to an older config

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be removed, and remove nothing."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group(short_help="Build, look into and clean up sandboxes.")
def sandbox() -> None:
    """Sandboxes of the provider bubblewrap, on this machine. docs/sandboxes.md says what they are."""


@sandbox.command(short_help="Prepare what the sandboxes of a config share.")
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--verify", is_flag=True, help="Read every file of the layers and compare it with what was sealed."
)
@click.option("--rebuild", is_flag=True, help="Remove the layers that are there, and build them again.")
def build(config: Path | None, verify: bool, rebuild: bool) -> None:
    """Unpack the root file system and run the setup of CONFIG, unless that was done before.

    CONFIG is a sandbox.yaml, or an eval set with a bubblewrap sandbox.  [default: ./sandbox.yaml]

    \b
    hawk sandbox build                     of ./sandbox.yaml
    hawk sandbox build evals.yaml          of the eval set's sandbox
    hawk sandbox build --rebuild           again, as if it had never been done
    """
    from hawk.cli.sandbox_build import run

    if config is None and not Path(USUAL_CONFIG).exists():
        raise UsageError(f"There is no {USUAL_CONFIG} here.", remedy="hawk sandbox build CONFIG")
    raise click.exceptions.Exit(run(config or Path(USUAL_CONFIG), verify=verify, rebuild=rebuild))


@sandbox.command("list", short_help="List layers, images and the sandboxes that live.")
@as_json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List layers and imported images, the sandboxes that live, and what dead ones left behind."""
    from hawk.cli.sandbox_view import inventory, print_inventory

    found = inventory(app.settings)
    if as_json:
        _print_json(found)
    else:
        print_inventory(found)


sandbox.add_command(shell)


@sandbox.command(short_help="Remove what killed sandboxes left behind.")
@click.option(
    "--docker", is_flag=True, help="Also containers of Inspect's docker provider that nobody owns any more."
)
@click.option(
    "--pods",
    is_flag=True,
    help="Also pods, Services, network policies and Secrets in the cluster's namespace.",
)
@click.option(
    "--older-than",
    metavar="TIME",
    help="With --pods, also what was made so long ago elsewhere and has no owner in the cluster: 12h, 7d, …",
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="The namespace.  [default: HAWK_KUBE_NAMESPACE, else the kubeconfig's]",
)
@dry_run_option
@as_json_option
@pass_app
def sweep(
    app: App,
    docker: bool,
    pods: bool,
    older_than: str | None,
    namespace: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove what sandboxes left whose processes were killed all at once. The living are not touched.

    With --docker also the containers, networks and volumes of compose projects that Inspect's docker provider has
    made and no running process can be the owner of. What may belong to somebody stays, and is named.

    With --pods also what workers of this machine have left in a cluster. A runner's pods in the cluster are removed with
    its Job by the cluster itself. What processes of other machines have made stays, unless it is --older-than so long.

    \b
    hawk sandbox sweep --pods --older-than 1d --dry-run     what would be removed
    """
    from hawk.cli.sandbox_sweep import InCluster, print_sweep, run

    if not pods and (older_than or namespace):
        raise UsageError("--older-than and --namespace are of pods.", remedy="Give --pods as well.")
    age = _seconds(older_than) if older_than else None
    found = run(
        app.settings, docker=docker, pods=InCluster(namespace, age) if pods else None, dry_run=dry_run
    )
    if as_json:
        _print_json(found)
    else:
        print_sweep(found)
    raise click.exceptions.Exit(1 if found["failed"] else 0)


@sandbox.command(short_help="Remove layers that were not used for long.")
@click.option(
    "--older-than", metavar="TIME", help=f"Not used for so long: 12h, 7d, …  [default: {USUAL_AGE}]"
)
@click.option("--all", "everything", is_flag=True, help="However short ago they were used.")
@dry_run_option
@yes_option
@pass_app
def prune(app: App, older_than: str | None, everything: bool, dry_run: bool, yes: bool) -> None:
    """Remove layers that no sandbox uses and none has used for some time. They are built again when needed.

    Imported images stay: 'hawk sandbox import --remove NAME' removes one. Asks first; without a terminal to ask at,
    it refuses unless -y is given.
    """
    from hawk.sandbox.images import names
    from hawk.sandbox.layers import LayerStore
    from hawk.sandbox.names import store_path

    if everything and older_than is not None:
        raise UsageError("--all and --older-than can't both be meant.", remedy="Leave one of them out.")
    age = 0.0 if everything else _seconds(older_than or USUAL_AGE)
    store = LayerStore(store_path(app.settings))
    keep = set(names(store).values())
    chosen = store.prune(age, keep=keep, dry_run=True)
    for layer in chosen:
        click.echo(f"{layer.key[:8]}  {size(layer.bytes):>8}  {clean(layer.description)}")
    total = size(sum(layer.bytes for layer in chosen))
    if dry_run or not chosen:
        note(
            f"{plural(len(chosen), 'layer')} could be removed, {total}." if chosen else "No layer to remove."
        )
        if dry_run:
            return
    elif not yes and not sys.stdin.isatty():
        raise UsageError("Nothing removed: there is no terminal to ask at.", remedy="hawk sandbox prune -y")
    elif not yes:
        click.confirm(f"Remove {plural(len(chosen), 'layer')}, {total}?", abort=True, err=True)
    removed = store.prune(age, keep=keep)  # with nothing chosen: what killed builds left
    if chosen:
        note(f"Removed {plural(len(removed), 'layer')}, {size(sum(layer.bytes for layer in removed))}.")


@sandbox.command("import", short_help="Give an image a name that `rootfs` knows.")
@click.argument("name", shell_complete=complete_image)
@click.argument("source", required=False, type=click.Path(path_type=str))
@click.option(
    "--remove", is_flag=True, help="Forget the image of this name, and remove it unless it is in use."
)
def import_(name: str, source: str | None, remove: bool) -> None:
    """Unpack SOURCE, and call it NAME: 'rootfs: NAME' in a sandbox's config means it then.

    SOURCE is an image of the local docker engine, a tar (of a root file system, or what 'docker save' writes), or a
    directory.  [default: the docker image NAME]

    \b
    hawk sandbox import debian:12                      from docker, under the same name
    hawk sandbox import mine docker:me/mine:latest     from docker, under another
    hawk sandbox import mine ./image.tar.gz            from a file
    hawk sandbox import --remove mine
    """
    from hawk.cli.sandbox_import import forget, run

    if remove and source is not None:
        raise UsageError(
            "--remove takes a name and no source.", remedy=f"hawk sandbox import --remove {name}"
        )
    if remove:
        forget(name)
    else:
        run(name, source)


def _seconds(text: str) -> float:
    from hawk.sandbox.quantities import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as ex:
        raise UsageError(f"--older-than: {ex}.") from ex


def _print_json(data: object) -> None:
    import json

    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(data), indent=2))
