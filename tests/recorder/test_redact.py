"""No secret is left in what goes through, whatever it stands in and however the text is cut into parts."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.core.recorder import redact
from hawk.core.recorder.redact import MARK, Redactor, secret_values

WORD = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=36, max_size=60)
KEYS = st.one_of(
    WORD.map("sk-{}".format),
    WORD.map("sk-proj-{}".format),
    WORD.map("AIza{}".format),
    WORD.map("ghp_{}".format),
    WORD.map("github_pat_{}".format),
    WORD.map("hf_{}".format),
    WORD.map("xoxb-{}".format),
    st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=16, max_size=16).map("AKIA{}".format),
    st.tuples(WORD, WORD).map(lambda two: f"eyJ{two[0]}.{two[1]}.sig"),
)
FRAMES = st.sampled_from(
    [
        "{}",
        " {} ",
        "\n{}\n",
        "key {}, and so on",
        "https://example.org/?a={}&b=1",
        "Authorization: Bearer {}",
        "('{}')",
        "\x1b[31m{}\x1b[0m",
    ]
)


@given(KEYS, FRAMES, st.integers(0, 3), st.text(max_size=30))
def test_keys_of_known_formats_are_taken_out(key: str, frame: str, nested: int, around: str) -> None:
    text = frame.format(key)
    for _ in range(nested):  # JSON within JSON: an escaped line end is no letter before the key
        text = json.dumps({"around": around, "text": text})
    shown = Redactor().text(text)
    assert key not in shown
    assert MARK in shown


@pytest.mark.parametrize(
    "text",
    [
        'OPENAI_API_KEY="{}"',
        "export SERVICE_KEY={}",
        "{{'api_key': '{}'}}",
        '{{"access_token": "{}"}}',
        '{{"text": "{{\\"password\\": \\"{}\\"}}"}}',
        "client_secret: {}",
        "postgresql://user:{}@host/base",
        "https://{}@host/x",
        "GET /x?page=1&sig={} HTTP/1.1",
        "https://host/?api-version=2&amp;key={}",
        "Authorization: Basic {}",
        "(b'authorization', b'Bearer {}')",
        "Set-Cookie: session={}; Path=/",
        '{{"x-api-key":"{}"}}',
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n{}",
    ],
)
def test_what_is_called_secret_is_taken_out(text: str) -> None:
    secret = "x7Rb0tqLpw92MzvK"
    assert secret not in Redactor().text(text.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        '{"total_tokens": 329, "tokens": 12, "token": 12345, "max_tokens": 1e5}',
        "task-abcdefghijklmnopqrstuvwxyz-1 of disk-0123456789abcdef0123",
        "https://example.org:8080/a/b@c?page=2&size=10",
        '{"secret_names": ["OPENAI_API_KEY"], "secrets": []}',
        'File "/src/tokens.py", line 12, in tokenize',
        "2026-11-30T07:10:17.346805+00:00 Retrying request in 0.46 seconds (retry 1 of 2)",
    ],
)
def test_what_is_not_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_known_values_are_taken_out_in_every_form() -> None:
    value = 'my "own" päss/word'
    written = [value, json.dumps(value), "?q=my%20%22own%22%20p%C3%A4ss%2Fword"]
    written.append(base64.b64encode(value.encode()).decode())
    redactor = Redactor([value, "1"])
    shown = [redactor.text(f"a1 {text} b") for text in written]
    assert shown[0] == f"a1 {MARK} b"  # the value "1" would leave nothing to read
    assert all("own" not in text and MARK in text for text in shown)
    assert redactor.counts["known values"] == 4


def test_values_of_variables_that_tell() -> None:
    environ = {
        "OPENAI_API_KEY": "abc123xyz",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "USE_TOKENS": "true",
        "EDITOR": "vi nano",
    }
    assert secret_values({**environ, "DB_PASSWORD": "swordfish"}) == {"abc123xyz", "swordfish"}


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(max_size=20),
    KEYS,
    st.sampled_from(
        ["token=", "password: ", "token='", "cookie", "authorization", "Bearer ", "?key=", "://u:", "\\", '"',
         "-----BEGIN PRIVATE KEY-----", "api_key=\\\"x", "secret:\n"]
    ),
)  # fmt: skip
NAMES = st.sampled_from(["token", "authorization", "cookie", "api_key", "a", "PASSWORD", "x?key"]) | st.text(
    max_size=5
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150)
@given(DOCUMENTS, st.booleans())
def test_json_stays_json(document: Any, ascii_only: bool) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only)
    json.loads(Redactor().text(text))


@given(
    st.lists(st.one_of(KEYS, st.text("abc \n\"'=&", max_size=300)), max_size=12),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_the_parts_of_a_stream_do_not_matter(pieces: list[str], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(redact, "WINDOW", 512)
        small.setattr(redact, "OVERLAP", 128)
        data = "".join(pieces).encode()
        places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        parts = [data[a:b] for a, b in itertools.pairwise(places)]
        shown = b"".join(Redactor().stream(parts)).decode()
    assert not [
        piece
        for piece in pieces
        if len(piece) > 36 and piece[:4] in ("AIza", "ghp_", "gith") and piece in shown
    ]


def test_a_line_of_many_megabytes() -> None:
    """A value that goes on and on is taken out to its end; what follows it is not."""
    key = b"sk-" + b"a" * 9_000_000
    redactor = Redactor()
    shown = b"".join(
        redactor.stream([b"x" * 3_000_000, b' "', key[:5], key[5:], b'" tail sk-0123456789abcdefghij'])
    )
    assert shown.endswith(f'" tail {MARK}'.encode())
    assert len(shown) < 3_000_100
    assert redactor.counts["keys"] == 2
