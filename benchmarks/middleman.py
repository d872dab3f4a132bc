"""Prints the middleman's bars: `python -m benchmarks.middleman [--only throughput,latency,…] [--quick] [--litellm DIR]`.

One fake provider, one load generator, one process each; a bare aiohttp pass-through and LiteLLM run in the same call.
Ends with 1 when a bar is missed. An idle machine gives the better figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import bars, middleman_flow, middleman_speed, middleman_storm
from benchmarks.middleman_bars import Way
from benchmarks.middleman_proxies import open_files
from benchmarks.processes import calm

PARTS: dict[str, Callable[[Way], list[bars.Bar]]] = {
    "throughput": middleman_speed.throughput,
    "latency": middleman_speed.latency,
    "first-byte": middleman_flow.first_byte,
    "idle": middleman_flow.idle,
    "storm": middleman_storm.storm,
    "revoke": middleman_flow.revoke,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="less of everything: for trying, no results are kept"
    )
    parser.add_argument(
        "--litellm", type=Path, help="an environment that has LiteLLM, instead of one made here"
    )
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or proxies would stay behind
    open_files()
    measured: list[bars.Bar] = []
    for name in wanted:
        print(f"{name} …", file=sys.stderr, flush=True)
        measured += _part(name, options.litellm, options.quick)
    print(bars.text(measured))
    if options.only == parser.get_default("only") and not options.quick:
        sys.argv[1:] = []  # where LiteLLM is on this machine is nobody's business
        print(f"Written to {bars.write_results('middleman', measured).relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict == "PASS" for bar in measured) else 1


def _part(name: str, litellm: Path | None, quick: bool) -> list[bars.Bar]:
    """One part's bars; a part that fails is a miss, and the others are still measured."""
    with tempfile.TemporaryDirectory(prefix="hawk-benchmark-", ignore_cleanup_errors=True) as base:
        if not quick:
            calm()
        try:
            return PARTS[name](Way(Path(base), litellm, quick))
        except Exception as ex:
            traceback.print_exc()
            return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


if __name__ == "__main__":
    sys.exit(main())
