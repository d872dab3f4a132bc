"""Prints the bars of the cluster: `KUBECONFIG=… python -m benchmarks.kubernetes [--only engine,sandbox] [--rounds N]`.

Ends with 1 when a bar is missed. Needs a cluster on which a namespace may be made, and an image that its nodes have
(HAWK_TEST_IMAGE): a Debian with a shell. Without KUBECONFIG it says what was not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import traceback
from collections.abc import Callable

from benchmarks import bars, kubernetes_engine, kubernetes_sandbox
from benchmarks.processes import calm
from hawk.kube.api import connect

PARTS = ("engine", "sandbox")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=10, help="of each measurement (10)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    if not os.environ.get("KUBECONFIG"):
        print("NOT MEASURED: KUBECONFIG names no cluster", file=sys.stderr)
        return 0
    measured: list[bars.Bar] = []
    for name in PARTS:
        if name in wanted:
            print(f"{name} …", file=sys.stderr, flush=True)
            measured += _part(name, options.rounds)
    print(bars.text(measured))
    if wanted == list(PARTS):
        written = bars.write_results("kubernetes", measured)
        print(f"Written to {written.relative_to(bars.RESULTS.parents[1])}")
    return 0 if all(bar.verdict in ("PASS", "NOT MEASURED") for bar in measured) else 1


def _part(name: str, rounds: int) -> list[bars.Bar]:
    """One part's bars; a part that fails is a miss, and the others are still measured."""
    calm()
    try:
        if name == "sandbox":
            return asyncio.run(kubernetes_sandbox.measure(rounds))
        return _in_namespace(lambda namespace: kubernetes_engine.measure(namespace, rounds))
    except Exception as ex:
        traceback.print_exc()
        return [bars.missing(f"all of {name}", 0, "", f"{type(ex).__name__}: {ex}")]


def _in_namespace(work: Callable[[str], list[bars.Bar]]) -> list[bars.Bar]:
    name = f"hawk-bench-{secrets.token_hex(3)}"

    async def make() -> None:
        async with await connect(namespace=name) as cluster:
            await cluster.create({"kind": "Namespace", "metadata": {"name": name}})
            while await cluster.get("ServiceAccount", "default") is None:  # noqa: ASYNC110  # the cluster makes it
                await asyncio.sleep(0.1)

    async def remove() -> None:
        async with await connect(namespace=name) as cluster:
            await cluster.delete("Namespace", name)

    asyncio.run(make())
    try:
        return work(name)
    finally:
        asyncio.run(remove())


if __name__ == "__main__":
    sys.exit(main())
