"""The containers of one attempt: made, waited for, and deleted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hawk.core.cluster_why import Stage, Why
from hawk.core.snapshot import SandboxFacts
from hawk.errors import ClusterError
from hawk.kube.problems import Reason, reason_of
from hawk.sandbox.errors import SandboxError
from hawk.sandbox.pod import manifest, names, network
from hawk.sandbox.pod.box import BoxGoneError, PodBox
from hawk.sandbox.pod.options import PodConfig
from hawk.sandbox.pod.site import Site
from hawk.sandbox.pod.tracking import Tracked

Say = Callable[[str], None]
"""Told what is waited for, in words."""

_AT_ONCE = frozenset({"InvalidImageName", "ErrImageNeverPull"})  # nothing that time heals
_AT_ONCE_GRACE = 0.5  # seconds in which an event may say more
_CREATED = 30.0
_LOOK = 5.0
_QUOTA_PAUSE = 5.0


class PodError(SandboxError):
    """A pod did not start. Fields: `pod`, `why` (the cluster's word for it)."""


@dataclass(frozen=True)
class About:
    """For whom a sandbox is.

    Attributes:
        task, sample, epoch: The attempt; empty when it is not known.
    """

    task: str = ""
    sample: str = ""
    epoch: str = ""

    def labels(self) -> dict[str, str]:
        result = {names.SAMPLE: names.short_hash(f"{self.task}\n{self.sample}")} if self.sample else {}
        return result | ({names.ATTEMPT: names.label(self.epoch)} if self.epoch else {})

    def annotations(self) -> dict[str, str]:
        pairs = {names.TASK: self.task, names.SAMPLE_ID: self.sample, names.EPOCH: self.epoch}
        return {key: value[:1000] for key, value in pairs.items() if value}


@dataclass
class PodGroup:
    """Containers by the name of their service, `default` first."""

    site: Site
    config: PodConfig
    name: str
    boxes: dict[str, PodBox] = field(default_factory=dict)
    tracked: list[Tracked] = field(default_factory=list)
    _others: list[tuple[str, str]] = field(default_factory=list)
    _creating: set[asyncio.Future[Any]] = field(default_factory=set)

    async def create(self, item: dict[str, Any], *, patience: float = 30.0) -> None:
        """Create one of its objects. The request goes on when the caller is canceled: `close` waits for it.

        Raises:
            ClusterError: It was refused.
        """
        task = asyncio.ensure_future(self.site.cluster.create(item, patience=patience))
        self._creating.add(task)
        task.add_done_callback(self._created)
        await asyncio.shield(task)

    def _created(self, task: asyncio.Future[Any]) -> None:
        self._creating.discard(task)
        if not task.cancelled():
            task.exception()  # seen, if anybody still waits for it

    def facts(self) -> SandboxFacts:
        """What there is to say about them, as one."""
        boxes = list(self.boxes.values())
        troubles: Counter[str] = Counter()
        for box in boxes:
            troubles.update(box.troubles.copy())  # another thread may be asking
        lost = next((box.lost for box in boxes if box.lost is not None), None)
        return SandboxFacts(boxes[0].label, dict(troubles), {"memory": "cgroup of the pod"}, lost)

    @property
    def alive(self) -> bool:
        """Whether all of it is as it should be."""
        return all(tracked.ended() is None and tracked.ready for tracked in self.tracked)

    def claim(self, about: About) -> None:
        """It was kept warm, and is now somebody's: said in the cluster too, which nobody waits for."""
        labels: dict[str, Any] = {**about.labels(), names.WARM: None}
        patch = {"metadata": {"labels": labels, "annotations": about.annotations()}}
        for tracked in self.tracked:
            self.site.later(self.site.cluster.patch("Pod", tracked.name, patch))

    async def close(self) -> None:
        """Have all of it deleted."""
        for tracked in self.tracked:
            tracked.ending = True
        for box in self.boxes.values():
            box.close()
        if self._creating:  # deleted before it is there, it would stay
            await asyncio.wait(self._creating, timeout=_CREATED)
        await asyncio.gather(
            *(self.site.delete("Pod", t.name) for t in self.tracked),
            *(self.site.delete(kind, name) for kind, name in self._others),
        )
        for tracked in self.tracked:
            self.site.tracking.forget(tracked.name)


async def open_group(
    site: Site, config: PodConfig, *, name: str, about: About, say: Say, warm: bool = False
) -> PodGroup:
    """Make the pods of one attempt and wait until they are ready.

    Args:
        name: Unique to the job.
        warm: It is kept for an attempt that is not known yet.

    Raises:
        PodError: One did not start; says what the cluster says of it.
        ClusterError: The cluster refuses it.
    """
    group = PodGroup(site, config, name)
    deadline = time.monotonic() + config.start_timeout
    try:
        say("making its pod's network policy")
        key, resolved = await site.network(config.network)
        labels = {**about.labels(), **({names.WARM: "true"} if warm else {})}
        placing = manifest.Placing(name, key, labels, about.annotations())
        where = site.cluster.namespace
        made = manifest.pods(config, site.owner, placing, resolved, site.defaults, where)
        await _make_all(group, made, deadline, say)
        await asyncio.gather(*(_ready(group, tracked, deadline, say) for tracked in group.tracked))
        for service, options in {manifest.MAIN: config, **config.services}.items():
            tracked = group.tracked[list(made).index(service if service in made else manifest.MAIN)]
            group.boxes[service] = PodBox(site.cluster, tracked, service, options, where)
        if len(made) > 1:
            await _name_each_other(group, made)
    except BaseException:
        await asyncio.shield(group.close())
        raise
    return group


async def _make_all(group: PodGroup, made: dict[str, dict[str, Any]], deadline: float, say: Say) -> None:
    site = group.site
    others = []
    if len(made) > 1:
        others = [manifest.headless(site.owner, group.name)]
        if not group.config.network.open:
            others.append(network.among(site.owner, group.name))
    for item in others:
        group._others.append((item["kind"], item["metadata"]["name"]))
    await asyncio.gather(*(group.create(item) for item in others))
    group.tracked = [site.tracking.track(pod["metadata"]["name"]) for pod in made.values()]
    await asyncio.gather(*(_create(group, pod, deadline, say) for pod in made.values()))


async def _create(group: PodGroup, pod: dict[str, Any], deadline: float, say: Say) -> None:
    """Create a pod; while the namespace's quota is used up, wait for somebody's end."""
    name = pod["metadata"]["name"]
    say(f"creating its pod {name}")
    while True:
        try:
            await group.create(pod, patience=max(1.0, deadline - time.monotonic()))
            return
        except ClusterError as ex:
            if reason_of(ex) != Reason.QUOTA or time.monotonic() + _QUOTA_PAUSE > deadline:
                raise
            say(f"its pod {name} waits for the namespace's quota: {ex.fields.get('said', ex.message)}")
            await asyncio.sleep(_QUOTA_PAUSE)


async def _ready(group: PodGroup, tracked: Tracked, deadline: float, say: Say) -> None:
    config, name = group.config, tracked.name
    bad_since: float | None = None
    grace = float(config.image_grace)
    while True:
        if tracked.ready:
            return
        if (over := tracked.ended()) is not None:
            raise PodError(
                f"The sandbox's pod {name} ended before it was ready: it {over.words}",
                pod=name,
                why=over.reason,
            )
        waits = tracked.waits_for()
        say(_said(name, waits, group.site.tracking.problem))
        now = time.monotonic()
        if waits.wrong and waits.container:
            bad_since = bad_since or now
            grace = min(grace, _AT_ONCE_GRACE) if waits.reason in _AT_ONCE else grace
            if now - bad_since > grace:
                raise _given_up(group, name, waits)
        if now > deadline:
            raise PodError(
                f"The sandbox's pod {name} was not ready after {config.start_timeout} s: {waits.text}",
                remedy="Ask for less, make room in the cluster, or raise `start_timeout`.",
                pod=name,
                why=waits.reason,
            )
        ends = deadline if bad_since is None else min(deadline, bad_since + grace)
        await tracked.changed(min(_LOOK, max(0.05, ends - now + 0.01)))


def _given_up(group: PodGroup, name: str, waits: Why) -> PodError:
    if waits.stage is Stage.IMAGE:
        options = group.config.services.get(waits.container, group.config)
        image = group.site.defaults.image(options)
        return PodError(
            f"The sandbox's image {image} can't be had (pod {name}): {waits.text}",
            remedy="Correct `image`, push it where the cluster's nodes reach it, or set `pull_secrets`.",
            pod=name,
            why=waits.reason,
        )
    return PodError(f"The sandbox's pod {name} can't be started: {waits.text}", pod=name, why=waits.reason)


def _said(name: str, waits: Why, problem: str | None) -> str:
    if problem is not None:
        return f"its pod {name}: nothing new is known ({problem})"
    if waits.stage is Stage.SCHEDULING and waits.wrong:
        return f"its pod {name} waits for a node: {waits.detail or waits.reason}"
    return f"its pod {name}: {waits.text}"


async def _name_each_other(group: PodGroup, made: Iterable[str]) -> None:
    """Write the pods' addresses into their tables: names work then where no name server may be asked."""
    lines = []
    for service, tracked in zip(made, group.tracked, strict=True):
        address = tracked.pod.ip if tracked.pod is not None else None
        called = group.config.default if service == manifest.MAIN and group.config.default else service
        if address:
            lines.append(f"{address}\t{called}\n")
    script = ["/bin/sh", "-c", "cat >>/etc/hosts"]
    text = "".join(lines).encode()
    boxes = [group.boxes[service] for service in made]
    # without root in the container its names come from the headless Service alone
    results = await asyncio.gather(
        *(box.run(script, stdin=text, timeout=30) for box in boxes), return_exceptions=True
    )
    gone = next((r for r in results if isinstance(r, BoxGoneError)), None)
    if gone is not None:
        raise PodError(f"A pod of the sandbox {group.name} ended before it was used: {gone}")
