"""A diagnosis as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from hawk.cli.text import clean, duration, parse_time, plural
from hawk.cli.watch_troubles import verdict_line
from hawk.core.diagnosis.causes import Layer, Severity
from hawk.core.diagnosis.verdict import Diagnosis, Judged, Verdict
from hawk.core.states import JobStatus

FACTS = 5
"""Facts shown of a verdict; `--json` has all."""

HELD = 6
"""Names shown of the attempts that a verdict holds."""

DOCS = "docs/why-is-my-eval-stuck.md"

_TELLS = {
    Severity.INFO: "no alarm",
    Severity.WARNING: "slowed",
    Severity.STUCK: "won't go on by itself",
    Severity.FATAL: "over, unless somebody acts",
}


def render(found: Diagnosis, columns: int = 110) -> str:
    """All verdicts, then what is well, then what could not be seen."""
    now = parse_time(found.at) or datetime.now(UTC)
    troubles = [v for v in found.verdicts if v.layer is not Layer.HEALTHY]
    parts = [_head(found, troubles)]
    parts += [_verdict(v, now, columns) for v in troubles]
    well = [
        f"  {line}"
        for v in found.verdicts
        if v.layer is Layer.HEALTHY
        for line in _wrap(f"{v.cause}: {v.what}", columns - 2)
    ]
    if well:
        parts.append("\n".join(["well", *well]))
    if found.missing:
        parts.append(
            "\n".join(
                [
                    "not seen, so that less is certain",
                    *(f"  {clean(s)}: {clean(w)}" for s, w in found.missing.items()),
                ]
            )
        )
    return "\n\n".join(parts)


def _head(found: Diagnosis, troubles: list[Verdict]) -> str:
    status = _label(found.status)
    at = parse_time(found.at)
    when = f"{at.astimezone():%H:%M:%S}" if at else ""
    said = f"{clean(found.job_id)}: {status} · seen at {when}"
    worst = troubles[0] if troubles else None
    if worst is None:
        return f"{said}\n  nothing is wrong with it that Hawk can see"
    if worst.severity is Severity.INFO:
        return f"{said}\n  nothing is wrong; what it waits for:"
    return said


def _label(status: str) -> str:
    try:
        return JobStatus(status).label
    except ValueError:
        return clean(status) or "unknown"


def _verdict(v: Verdict, now: datetime, columns: int) -> str:
    head = f"{v.n}. {v.severity.upper()} · {v.layer}/{v.cause}" + (
        f" · {clean(v.subject)}" if v.subject else ""
    )
    lines = [head, *_wrap(clean(v.what), columns - 3, "   ")]
    lines.append("   " + " · ".join(_holds(v, now)))
    if (v.held and v.attempts > 1) or len(v.held) == 1:
        more = f" … and {v.attempts - HELD:,} more" if v.attempts > HELD and len(v.held) >= HELD else ""
        lines += _wrap(f"holds: {', '.join(clean(name) for name in v.held[:HELD])}{more}", columns - 3, "   ")
    for fact in v.evidence[:FACTS]:
        at = parse_time(fact.at)
        when = f" ({at.astimezone():%H:%M:%S})" if at else ""
        lines += _wrap(f"· {fact.source}: {clean(fact.fact)}{when}", columns - 3, "   ", "     ")
    if len(v.evidence) > FACTS:
        lines.append(f"   · … {len(v.evidence) - FACTS} more facts (--json)")
    if v.weakened:
        lines.append(f"   not checked against: {', '.join(v.weakened)}")
    lines += _wrap(f"do:   {clean(v.remedy)}  [{v.who}]", columns - 3, "   ", "         ")
    lines.append(f"   next: {clean(v.next)}")
    if v.fix is not None:
        lines.append(f"   fix:  hawk fix {v.n}  ({v.fix.kind.replace('_', ' ')})")
    lines.append(f"   more: {DOCS}#{v.doc}")
    return "\n".join(lines)


def _holds(v: Verdict, now: datetime) -> list[str]:
    parts = []
    if v.attempts:
        parts.append(plural(v.attempts, "attempt") + (f" of {plural(v.pairs, 'pair')}" if v.pairs else ""))
    elif v.scope == "job":
        parts.append("the whole job")
    since = parse_time(v.since)
    if since is not None:
        parts.append(f"since {since.astimezone():%H:%M:%S} ({duration((now - since).total_seconds())})")
    if v.cost_hours >= 0.01:
        parts.append(f"{v.cost_hours:,.2f} attempt-hours lost")
    clears = parse_time(v.clears)
    if clears is not None:
        how = "won't go on by itself, next try" if v.severity.blocks else "ends by itself"
        parts.append(f"{how} in {duration((clears - now).total_seconds())}")
    else:
        parts.append(_TELLS[v.severity])
    if v.before_death:
        parts.append("so it was when it was last seen")
    return parts


def changes(before: Diagnosis, after: Diagnosis) -> Iterator[str]:
    """Verdicts that came, grew or went."""
    old = {_key(v): v for v in before.verdicts if v.layer is not Layer.HEALTHY}
    new = {_key(v): v for v in after.verdicts if v.layer is not Layer.HEALTHY}
    for key, v in new.items():
        was = old.get(key)
        if was is None or was.severity is not v.severity:
            yield verdict_line(msgspec.structs.asdict(v))
        elif was.attempts != v.attempts:
            yield f"{v.cause}: holds {plural(v.attempts, 'attempt')} (was {was.attempts:,})"
    for key, v in old.items():
        if key not in new:
            yield f"over: {v.cause}{f' · {clean(v.subject)}' if v.subject else ''}"
    if before.status != after.status:
        yield f"status: {_label(after.status)}"


def _key(v: Verdict) -> tuple[str, str, str]:
    return v.layer, v.cause, v.subject


def explained(found: Diagnosis, columns: int = 110) -> str:
    """What became of every rule."""
    lines = ["rules"]
    for outcome in ("fired", "ruled out", "not judged"):
        for judged in found.why:
            if judged.outcome == outcome:
                lines += _wrap(_judged(judged), columns - 2, "  ", "      ")
    silent = [f"{j.layer}/{j.cause}" for j in found.why if j.outcome == "not seen"]
    lines += _wrap(f"not seen: {', '.join(silent)}", columns - 2, "  ", "      ")
    return "\n".join(lines)


def _judged(judged: Judged) -> str:
    name = f"{judged.layer}/{judged.cause}"
    match judged.outcome:
        case "fired":
            return f"fired: {name}: {clean(judged.what)}"
        case "ruled out":
            return f"ruled out: {name} ({clean(judged.what)}) by {clean(judged.by)}"
    return f"not judged: {name}, for want of {clean(judged.by)}"


def _wrap(text: str, columns: int, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, max(30, columns), initial_indent=first, subsequent_indent=first if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
