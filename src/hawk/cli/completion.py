"""`hawk completion`: shells complete commands, options and the ids of jobs on this machine."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: eval "$(hawk completion bash)"   in ~/.bashrc
    zsh:  eval "$(hawk completion zsh)"   in ~/.zshrc
    fish: hawk completion fish | source   in ~/.config/fish/config.fish
    """
    from hawk.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # click's own source() checks the version of bash by running one; the template alone is what is needed.
    complete = kind(cli, {}, "hawk", "_HAWK_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
