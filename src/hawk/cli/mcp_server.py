"""The MCP server: which tools there are, and how a call becomes an answer. Speaks over standard input and output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp.types import Tool as Offer
from pydantic import ValidationError

from hawk import __version__
from hawk.cli.context import App
from hawk.cli.mcp_attempt import TIMELINE, TRANSCRIPT
from hawk.cli.mcp_base import Tool
from hawk.cli.mcp_fixes import FIX, STOP_SAMPLE
from hawk.cli.mcp_job import DIAGNOSE, WATCH
from hawk.cli.mcp_probe import PROBE
from hawk.cli.mcp_recorder import LOGS, STACKTRACE, TRACE
from hawk.cli.mcp_results import LIST, REPORT
from hawk.cli.mcp_text import NOTICE, plain, short
from hawk.errors import HawkError

READING = (WATCH, DIAGNOSE, TRACE, STACKTRACE, TIMELINE, LOGS, PROBE, LIST, REPORT)
FIXES = (FIX, STOP_SAMPLE)

INSTRUCTIONS = f"""Hawk runs evaluations of AI models and says why one is not progressing. To find out: hawk_watch, then
hawk_diagnose, then what the verdict's evidence points to (hawk_trace, hawk_stacktrace, hawk_timeline, hawk_logs, hawk_probe).
A job that is slow but moving is not stuck: leave it alone. Ask the person before anything is stopped, changed or deleted.
{NOTICE}"""

_ERROR = 4_000  # characters of an error: an installer's last lines fit


def offered(*, transcripts: bool, fixes: bool) -> list[Tool]:
    """The tools that the person has allowed."""
    return [*READING, *([TRANSCRIPT] if transcripts else []), *(FIXES if fixes else [])]


def serve(app: App, tools: Sequence[Tool]) -> None:
    """Answer calls until the client closes standard input."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(_serve, app, tools)


async def _serve(app: App, tools: Sequence[Tool]) -> None:
    by_name = {tool.name: tool for tool in tools}

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_offer(tool) for tool in tools])

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            return _failed(f"There is no tool {short(params.name)!r}.\n  → There are: {', '.join(by_name)}.")
        # A thread of its own, and a connection: a slow answer keeps none of the others waiting.
        return await anyio.to_thread.run_sync(answer, app, tool, params.arguments or {})

    server = Server(
        "hawk",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _offer(tool: Tool) -> Offer:
    return Offer(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.args.model_json_schema(),
        output_schema=tool.result.model_json_schema(),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.reads,
            open_world_hint=tool.outside,
        ),
    )


def answer(app: App, tool: Tool, arguments: dict[str, Any]) -> CallToolResult:
    """What a call answers: text and structure, or what went wrong and what to do, never a traceback."""
    try:
        result = tool.run(app, tool.args.model_validate(arguments)).fitted()
    except ValidationError as ex:
        return _failed(
            "\n".join(_misfit(tool, error) for error in ex.errors(include_url=False, include_input=False))
        )
    except HawkError as ex:
        return _failed(ex.render())
    except Exception as ex:  # a bug in Hawk must not end the session
        logging.getLogger(__name__).exception("%s failed", tool.name)
        return _failed(
            f"{tool.name} failed: {type(ex).__name__}. This is a bug in Hawk.\n  → The command line may still do it."
        )
    return CallToolResult(
        content=[TextContent(type="text", text=result.text())],
        structured_content=result.model_dump(mode="json"),
    )


def _misfit(tool: Tool, error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    takes = ", ".join(tool.args.model_fields)
    return f"Argument {short(where)!r}: {short(error['msg'], 200)}.\n  → {tool.name} takes: {takes}."


def _failed(text: str) -> CallToolResult:
    said = plain(text, lines=True)
    return CallToolResult(content=[TextContent(type="text", text=said[:_ERROR])], is_error=True)
