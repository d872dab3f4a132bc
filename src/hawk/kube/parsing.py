"""From the API's documents to `hawk.core.cluster`. Pure; whatever is odd in a document is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from hawk.core.cluster import Condition, Container, Ended, Event, Job, Pod
from hawk.core.text import one_line, parse_time
from hawk.kube import names

EVENTS = 5
MESSAGE = 500
"""Characters of what the cluster says."""

LAST_WORDS = 400
"""Characters of what a container wrote last, from its end."""

_KEPT = ("Ready", "DisruptionTarget")
"""Conditions of a pod that say something when they hold; the others do when they don't."""

Object = Mapping[str, Any]


def pod(item: Object) -> Pod:
    """A pod without its events."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    labels = meta.get("labels") or {}
    limits = {c.get("name"): _memory(c) for c in (*_list(spec, "containers"), *_list(spec, "initContainers"))}
    statuses = [*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")]
    return Pod(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        component=_text(labels.get(names.COMPONENT)),
        service=_text(labels.get(names.SERVICE)),
        task=_text(names.annotation(meta, names.TASK)),
        sample_id=_text(names.annotation(meta, names.SAMPLE_ID)) or None,
        epoch=_number(names.annotation(meta, names.EPOCH)),
        phase=_text(status.get("phase")),
        reason=_text(status.get("reason")),
        message=_text(status.get("message")),
        node=_text(spec.get("nodeName")) or None,
        ip=_text(status.get("podIP")) or None,
        conditions=[
            c for c in map(_condition, _list(status, "conditions")) if c.type in _KEPT or c.status != "True"
        ],
        containers=[_container(c, limits) for c in statuses],
        created=_time(meta.get("creationTimestamp")),
        deleting=_time(meta.get("deletionTimestamp")),
    )


def job(item: Object) -> Job:
    """A Job without its events."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    labels = meta.get("labels") or {}
    return Job(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        created=_time(meta.get("creationTimestamp")),
        suspended=bool(spec.get("suspend")),
        queue=labels.get("kueue.x-k8s.io/queue-name"),
        priority=labels.get("kueue.x-k8s.io/priority-class"),
        deadline=spec.get("activeDeadlineSeconds"),
        active=int(status.get("active") or 0),
        failed=int(status.get("failed") or 0),
        succeeded=int(status.get("succeeded") or 0),
        conditions=[_condition(c) for c in _list(status, "conditions")],
        deleting=_time(meta.get("deletionTimestamp")),
    )


def kept(item: Object, parse: Callable[[Object], Any], **more: Any) -> dict[str, Any]:
    """What a watch keeps of an object: by what it is told apart, and as `seen` what is read later.

    500 pods as the API describes them would be megabytes.
    """
    meta = {name: item["metadata"].get(name) for name in ("uid", "name", "resourceVersion")}
    return {"metadata": meta, "seen": parse(item), **more}


def concerns(item: Object) -> tuple[str, str, str]:
    """Kind, name and uid of the object that an event is about."""
    about = item.get("involvedObject") or item.get("regarding") or {}
    return _text(about.get("kind")), _text(about.get("name")), _text(about.get("uid"))


def newest(found: Iterable[Event]) -> list[Event]:
    """The newest few, newest last; what is said again and again counts once."""
    by_text: dict[tuple[str, str], Event] = {}
    for said in sorted(found, key=lambda said: said.at or ""):
        again = by_text.pop((said.reason, said.message), None)
        count = said.count + (again.count if again is not None else 0)
        by_text[said.reason, said.message] = msgspec.structs.replace(said, count=count)
    return list(by_text.values())[-EVENTS:]


def event(item: Object) -> Event:
    """An event; `count`: how often it was seen so far."""
    series = item.get("series") or {}
    return Event(
        reason=_text(item.get("reason")),
        message=_text(item.get("message")),
        type=_text(item.get("type")) or "Normal",
        count=int(series.get("count") or item.get("count") or 1),
        at=_time(series.get("lastObservedTime") or item.get("lastTimestamp") or item.get("eventTime"))
        or _time((item.get("metadata") or {}).get("creationTimestamp")),
    )


def later(old: Pod | None, new: Pod) -> Pod:
    """A pod as it is now, with what is known of it from before: its events, and why its image can't be had."""
    if old is None:
        return new
    new.events = new.events or old.events
    before = {container.name: container for container in old.containers}
    for container in new.containers:
        was = before.get(container.name)
        backed_off = container.state == "waiting" and container.reason == "ImagePullBackOff"
        if was is not None and backed_off and len(was.message) > len(container.message):
            container.message = was.message
        if was is not None and container.ended is None and container.last is None:
            container.last = was.last
    return new


def _condition(item: Object) -> Condition:
    return Condition(
        type=_text(item.get("type")),
        status=_text(item.get("status")),
        reason=_text(item.get("reason")),
        message=_text(item.get("message")),
        since=_time(item.get("lastTransitionTime")),
    )


def _container(item: Object, limits: Mapping[Any, str]) -> Container:
    state = item.get("state") or {}
    word = next((name for name in ("waiting", "running", "terminated") if name in state), "unknown")
    said = state.get(word) or {}
    name = _text(item.get("name"))
    return Container(
        name=name,
        state=word,
        ready=bool(item.get("ready")),
        reason=_text(said.get("reason")),
        message=_text(said.get("message")) if word == "waiting" else "",
        restarts=int(item.get("restartCount") or 0),
        ended=_ended(state.get("terminated")),
        last=_ended((item.get("lastState") or {}).get("terminated")),
        memory=limits.get(name, ""),
    )


def _ended(item: Any) -> Ended | None:
    if not isinstance(item, Mapping):
        return None
    words = one_line(str(item.get("message") or "")[-4 * LAST_WORDS :], 4 * LAST_WORDS)
    return Ended(
        reason=_text(item.get("reason")),
        exit_code=item.get("exitCode") if isinstance(item.get("exitCode"), int) else None,
        message=words if len(words) <= LAST_WORDS else f"…{words[-LAST_WORDS:]}",
        at=_time(item.get("finishedAt")),
    )


def _memory(container: Object) -> str:
    return _text(((container.get("resources") or {}).get("limits") or {}).get("memory"))


def _list(item: Object, name: str) -> list[Any]:
    found = item.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _text(value: Any) -> str:
    return one_line(str(value), MESSAGE) if value not in (None, "") else ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _time(value: Any) -> str | None:
    found = parse_time(value) if isinstance(value, str) else None
    return found.isoformat(timespec="seconds") if found is not None else None
