"""Canonical requests: what may differ between two runs, and what may not."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hawk.middleman.canonical import LONGEST, again, canonical, canonical_path, digest, pretty

NAMES = st.sampled_from(["id", "call_id", "metadata", "input", "type", "user", "content", "arguments", "x"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.just("long " * LONGEST),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def of(value: Any) -> Any:
    return canonical(msgspec.json.encode(value))


def calls(name: str, answered: str | None = None) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [
            {"role": "assistant", "tool_calls": [{"id": name, "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": answered or name, "content": "1"},
        ],
    }


@given(VALUES)
def test_a_canonical_form_is_a_fixed_point_and_order_does_not_matter(value: Any) -> None:
    form = of(value)
    assert again(form) == form
    assert digest("p", "/x", again(form)) == digest("p", "/x", form)
    if isinstance(value, dict):
        assert of(dict(reversed(value.items()))) == form


@given(st.binary(max_size=200))
def test_any_bytes_have_a_canonical_form(body: bytes) -> None:
    assert pretty(canonical(body))


def test_identifiers_are_told_by_what_they_point_to_not_by_their_name() -> None:
    assert of(calls("call_abc")) == of(calls("call_xyz"))
    assert of(calls("call_abc")) != of(calls("call_abc", answered="call_other"))


def test_what_says_who_asks_is_left_out_and_what_is_asked_is_not() -> None:
    bare = {"model": "m", "messages": [], "temperature": 0}
    named = {**bare, "user": "u", "prompt_cache_key": "k", "metadata": {"user_id": "u"}}
    assert of(named) == of(bare)
    for other in ({"model": "n"}, {"temperature": 1}, {"messages": [{"id": "1"}]}, {"metadata": {"a": "b"}}):
        assert of({**bare, **other}) != of(bare)


def test_an_authors_id_is_kept() -> None:
    def used(order: str) -> Any:
        return of({"messages": [{"content": [{"type": "tool_use", "id": "t", "input": {"id": order}}]}]})

    assert used("order-1") != used("order-2")


def test_long_strings_are_told_apart_by_their_digest() -> None:
    one, other = "x" * LONGEST + "1", "x" * LONGEST + "2"
    assert of({"content": one}) != of({"content": other})
    assert len(msgspec.json.encode(of({"content": one * 100}))) < LONGEST


def test_a_form_is_the_same_whatever_its_boundary() -> None:
    form = b"--%b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--%b--\r\n"
    assert canonical(form % (b"1234", b"1234")) == canonical(form % (b"zzzzzz", b"zzzzzz"))
    assert canonical(form % (b"1", b"1")) != canonical(form.replace(b"\r\nx", b"\r\ny") % (b"1", b"1"))


def test_no_credential_stays_in_a_path() -> None:
    assert canonical_path("/v1beta/models/m:generateContent?key=AIza&alt=sse") == (
        "/v1beta/models/m:generateContent?alt=sse"
    )
    assert canonical_path("/v1/models?b=2&a=") == canonical_path("/v1/models?a=&b=2")
