"""Model groups: who may use which model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

EVERYBODY = "*"


def groups_of(person: str, groups: Mapping[str, Sequence[str]]) -> frozenset[str] | None:
    """The groups that a person is in.

    Args:
        person: As their token calls them.
        groups: Group to the people in it; `*` among them is everybody.

    Returns:
        None where there are no groups at all: everybody may use everything.
    """
    if not groups:
        return None
    return frozenset(name for name, people in groups.items() if person in people or EVERYBODY in people)


def permitted(person_groups: Collection[str] | None, model_groups: Collection[str]) -> bool:
    """Whether somebody in these groups (None: all) may use a model of those (none: everybody's)."""
    return person_groups is None or not model_groups or not set(model_groups).isdisjoint(person_groups)
