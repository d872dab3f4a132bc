"""What a refusal of the API's tells a person to do."""

import pytest

from hawk.kube.problems import Reason, refusal


def not_found(kind: str, name: str) -> dict[str, object]:
    """As an API server says it."""
    return {
        "kind": "Status",
        "status": "Failure",
        "message": f'{kind} "{name}" not found',
        "reason": "NotFound",
        "details": {"name": name, "kind": kind},
        "code": 404,
    }


def test_a_namespace_that_is_not_there_is_to_be_made() -> None:
    found = refusal(404, not_found("namespaces", "evals"), what="create Job a in namespace evals")
    assert found.fields["reason"] == Reason.NOT_FOUND
    assert "kubectl create namespace evals && kubectl apply -n evals -k deploy/engine" in (found.remedy or "")


@pytest.mark.parametrize("body", [not_found("pods", "a"), {"details": None}, {}, "not found", None])
def test_of_nothing_else_that_is_not_there_a_remedy_is_invented(body: object) -> None:
    found = refusal(404, body, what="get Pod a in namespace evals")
    assert (found.fields["reason"], found.remedy) == (Reason.NOT_FOUND, None)
