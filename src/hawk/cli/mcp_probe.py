"""`hawk_probe`: is it the provider, or what lies between?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from hawk.cli.context import App
from hawk.cli.mcp_base import Args, Result, Tool, Untrusted
from hawk.cli.mcp_text import short
from hawk.cli.middleman_link import Link
from hawk.cli.probe_direct import without_middleman
from hawk.errors import ServerUnavailableError


class Leg(BaseModel):
    """One way to the provider."""

    works: bool
    status: int | None
    error_type: str | None
    seconds: float | None
    said: Untrusted | None

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Leg | None:
        if found is None:
            return None
        status = found.get("status")
        works = isinstance(status, int) and 200 <= status < 300
        said = None if works else Untrusted.of(found.get("error") or found.get("body"))
        return cls(
            works=works,
            status=status,
            error_type=short(found.get("type")) or None,
            seconds=found.get("seconds"),
            said=said,
        )

    def __str__(self) -> str:
        took = f" in {self.seconds:.2f} s" if self.seconds else ""
        return (
            f"{'works' if self.works else 'fails'}: {self.status or self.error_type or 'no answer'}{took}"
            + (f" {self.said}" if self.said else "")
        )


class Probe(Result):
    model: str
    through: Leg | None = Field(description="The request through the middleman.")
    direct: Leg | None = Field(description="The same straight to the provider; None: not tried.")
    verdict: Untrusted | None
    whose: str | None = Field(description="Whose fault it is: provider, middleman, unknown; None: nobody's.")
    remedy: str | None

    def head(self) -> str:
        lines = [f"{self.model}", f"  through the middleman {self.through or 'not tried'}"]
        lines += [f"  directly {self.direct or 'not tried'}", f"  verdict: {self.verdict}"]
        return "\n".join(lines + ([f"  remedy: {self.remedy}"] if self.remedy else []))


class ProbeArgs(Args):
    model: str = Field(description="As Inspect names it: openai/gpt-5.")
    job: str | None = Field(default=None, description="As this job: its token, budget, addresses and keys.")


def _probe(app: App, args: ProbeArgs) -> Probe:
    try:
        found = Link(app.settings).post("/admin/probe", {"model": args.model, "job": args.job})
    except ServerUnavailableError as ex:
        found = without_middleman(app.settings, args.model, ex)
    return Probe(
        model=short(args.model),
        through=Leg.of(found.get("through")),
        direct=Leg.of(found.get("direct")),
        verdict=Untrusted.of(found.get("verdict"), 300),
        whose=short(found.get("whose")) or None,
        remedy=short(found.get("remedy"), 300) or None,
    )


PROBE = Tool(
    "hawk_probe",
    "Ask a model both ways",
    "Sends one tiny request to a model through the middleman and the same one directly, and says whose fault it is where one "
    "fails. Use it for errors 401, 403, 429, 5xx and time-outs of model calls. It costs some tokens, and can take two minutes.",
    ProbeArgs,
    Probe,
    _probe,
    outside=True,
)
