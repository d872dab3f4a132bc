"""What is left of a model call's error, as Inspect words it."""

from __future__ import annotations

import ast
import json

import pytest

from hawk.bridge.modelerror import without_request

REQUEST = json.dumps(
    {"messages": [{"role": "user", "content": "say }\n\nRequest:\n{}\n\nand more"}], "tools": None}, indent=2
)
ERROR = "PermissionDeniedError('Error code: 403 - Job j may not use p/m.')"


@pytest.mark.parametrize("request_text", [REQUEST, "{}", "", "... (3 lines truncated) ...\n  ]\n}"])
def test_the_request_before_an_error_goes_also_from_its_repr(request_text: str) -> None:
    message = f"\nRequest:\n{request_text}\n\n{ERROR}"
    assert without_request(message) == ERROR
    assert ast.literal_eval(without_request(repr(message))) == ERROR
    kind, _, inside = without_request(f"ModelGenerateError({message!r})").partition("(")
    assert (kind, ast.literal_eval(inside.removesuffix(")"))) == ("ModelGenerateError", ERROR)


@pytest.mark.parametrize("text", ["", "Request: none", "a tool said\nRequest:\nfoo", ERROR])
def test_other_errors_stay_as_they_are(text: str) -> None:
    assert without_request(text) == text
