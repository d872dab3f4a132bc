"""The command line. This module is all that `hawk --help` imports: no command's module, nothing but click.

Each command group is one module, loaded when it is used; `COMMANDS` knows their names and one-line helps.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

from hawk import __version__
from hawk.errors import HawkError

COMMANDS: dict[str, tuple[str, str]] = {
    "eval-set": ("eval_set:eval_set", "Run an eval set, or resume one."),
    "eval": ("evals:eval_", "Make and check folder evals."),
    "watch": ("watch:watch", "Watch a job until it ends."),
    "status": ("jobs:status", "Print the raw report of a job as JSON."),
    "diagnose": ("diagnose:diagnose", "Name the cause of a stuck job, with evidence and the next command."),
    "trace": ("trace:trace", "Print what a job's runner has in flight, and its trace."),
    "stacktrace": ("stacktrace:stacktrace", "Print what a job's attempts wait for, frame by frame."),
    "logs": ("logs:logs", "Print the output of a job's runner."),
    "timeline": ("timeline:timeline", "Show where a sample's time went."),
    "list": ("listing:list_", "List eval sets, evals or samples."),
    "transcript": ("transcripts:transcript", "Print what happened in one sample."),
    "transcripts": ("transcripts:transcripts", "Print or save the transcripts of an eval set."),
    "report": ("report:report", "Report what came of the attempts."),
    "compare": ("compare:compare", "Say whether two eval sets differ by more than noise."),
    "rescore": ("rescore:rescore", "Score the attempts of an eval set again, without an agent."),
    "export": ("export:export", "Save results and workspaces of an eval set."),
    "bundle": ("bundle:bundle", "Save what a maintainer needs to understand a job, as one file."),
    "fix": ("fix:fix", "Carry out the remedy of a verdict."),
    "pause": ("pause:pause", "Hold a running job, or one model of it."),
    "unpause": ("pause:unpause", "Let a paused job, or one model of it, go on."),
    "stop": ("jobs:stop", "Stop an eval set or one sample, and keep the work so far."),
    "delete": ("jobs:delete", "Delete a job and everything it produced."),
    "sandbox": ("sandbox:sandbox", "Build, look into and clean up sandboxes."),
    "middleman": ("middleman:middleman", "Look into the proxy to model providers, and set its keys."),
    "probe": ("probe:probe", "Ask a model through the middleman and directly, and compare."),
    "image": ("image:image", "Make the image that a cluster runs."),
    "mcp": ("mcp:mcp", "Serve tools for coding agents over MCP."),
    "doctor": ("doctor:doctor", "Say what this machine can do, and how to mend what it can't."),
    "server": ("server:server", "Run, start, stop or inspect the local server."),
    "auth": ("auth:auth", "Access tokens."),
    "login": ("auth:login", "Sign in, where a server asks for it."),
    "version": ("auth:version", "Print the versions of the command and of the server."),
    "completion": ("completion:completion", "Print the completion script of a shell."),
}

GARBAGE = 100_000
"""Objects made before garbage is looked for: more than a snapshot of 10,000 attempts has, and no cycles in it."""
INTERRUPTED = 130
BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and listed without being imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"hawk.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=short)
            for name, (_, short) in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, "--version", prog_name="hawk")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def cli(debug: bool) -> None:
    """Run agent and model evaluations, many attempts at once, and always know why one is not progressing.

    Without HAWK_API_URL a server is started on this machine when one is needed. Where an ID may be left
    out, the last one is meant.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `hawk` command: runs it and exits.

    Errors that a person can act on are printed without a traceback; `--debug`, anywhere on the line, or
    `HAWK_DEBUG=1` shows it.
    """
    gc.set_threshold(GARBAGE)
    args = list(sys.argv[1:] if argv is None else argv)
    debug = _take_debug(args)
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    try:
        code = _run(args)
    except KeyboardInterrupt:
        if debug:
            raise
        click.echo(err=True)
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except HawkError as ex:
        if debug:
            raise
        code = _print_error(ex)
    except OSError as ex:
        if debug:
            raise
        click.echo(f"Error: {ex}", err=True)
        code = 1
    code = _flush(code)
    gc.freeze()  # all that is left goes with the process: the interpreter need not look for garbage in it
    sys.exit(code)


def _run(args: list[str]) -> int:
    if "_HAWK_COMPLETE" in os.environ:
        cli.main(args, prog_name="hawk")
    try:
        with cli.make_context("hawk", args) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as ex:
        return ex.exit_code
    except click.Abort:
        click.echo("Aborted.", err=True)
        return 1
    except click.ClickException as ex:
        ex.show()
        return ex.exit_code
    return 0


def _take_debug(args: list[str]) -> bool:
    """Remove `--debug` from wherever it stands: people append it to the line that failed."""
    end = args.index("--") if "--" in args else len(args)
    found = [i for i in range(end) if args[i] == "--debug"]
    for i in reversed(found):
        del args[i]
    return bool(found) or os.environ.get("HAWK_DEBUG", "") not in ("", "0")


def _never_fail_to_encode(stream: IO[str] | None) -> None:
    """A terminal in another encoding shows `?` for what it can't, instead of ending the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _print_error(ex: HawkError) -> int:
    from hawk.cli.text import clean

    click.echo(f"{click.style('Error', fg='red', bold=True)}: {clean(ex.render(), lines=True)}", err=True)
    return ex.exit_code


def _flush(code: int) -> int:
    """Write out what is buffered; a reader that has gone (`| head`) is no error worth a message."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code or BROKEN_PIPE
        except (OSError, ValueError) as ex:
            click.echo(f"Error: {ex}", err=True)
            code = code or 1
    return code
