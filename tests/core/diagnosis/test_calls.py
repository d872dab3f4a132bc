"""How a request ended, by what providers really say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawk.core.diagnosis.calls import OURS, Kind, kind_of, of_error
from hawk.middleman.refusals import STATUS

SAID = [
    # OpenAI, Azure
    (429, "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.", Kind.RATE_LIMITED),
    (429, "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 45000. The input or output tokens must be reduced in order to run successfully.", Kind.CONTEXT_OVERFLOW),
    (429, '{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}', Kind.QUOTA_EXHAUSTED),
    (400, '{"error":{"message":"Billing hard limit has been reached","code":"billing_hard_limit_reached"}}', Kind.QUOTA_EXHAUSTED),
    (401, "Incorrect API key provided: sk-a***z. You can find your API key at https://platform.openai.com/account/api-keys.", Kind.AUTH_REJECTED),
    (403, '{"error":{"message":"Project `proj_1` does not have access to model `gpt-9`","code":"model_not_found"}}', Kind.MODEL_NOT_FOUND),
    (404, "The model `gpt-9` does not exist or you do not have access to it.", Kind.MODEL_NOT_FOUND),
    (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", Kind.CONTEXT_OVERFLOW),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again.", Kind.CONTEXT_OVERFLOW),
    (400, "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.", Kind.INVALID_REQUEST),
    (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", Kind.CONTENT_REFUSED),
    (400, "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", Kind.CONTENT_REFUSED),
    (404, '{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}', Kind.MODEL_NOT_FOUND),
    (429, "Requests have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 6 seconds.", Kind.RATE_LIMITED),
    (500, "The server had an error while processing your request. Sorry about that!", Kind.SERVER_ERROR),
    (503, "The engine is currently overloaded, please try again later", Kind.OVERLOADED),
    # Anthropic
    (529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', Kind.OVERLOADED),
    (400, "prompt is too long: 208310 tokens > 200000 maximum", Kind.CONTEXT_OVERFLOW),
    (400, "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000, decrease input length", Kind.CONTEXT_OVERFLOW),
    (413, '{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}', Kind.CONTEXT_OVERFLOW),
    (400, "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.", Kind.QUOTA_EXHAUSTED),
    (400, "You have reached your specified API usage limits. You will regain access on 2026-06-01.", Kind.QUOTA_EXHAUSTED),
    (404, '{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}', Kind.MODEL_NOT_FOUND),
    (401, '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}', Kind.AUTH_REJECTED),
    (429, "This request would exceed your organization's rate limit of 50,000 input tokens per minute", Kind.RATE_LIMITED),
    (400, "messages: text content blocks must be non-empty", Kind.INVALID_REQUEST),
    (400, "Output blocked by content filtering policy", Kind.CONTENT_REFUSED),
    # Gemini
    (400, "API key not valid. Please pass a valid API key.", Kind.AUTH_REJECTED),
    (404, "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent.", Kind.MODEL_NOT_FOUND),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", Kind.CONTEXT_OVERFLOW),
    (429, "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: generate_content_free_tier_requests, limit: 15. Please retry in 33.9s.", Kind.RATE_LIMITED),
    (429, "Quota exceeded for quota metric 'Requests' and limit 'GenerateRequestsPerDayPerProject'", Kind.QUOTA_EXHAUSTED),
    (429, "Resource has been exhausted (e.g. check quota).", Kind.RATE_LIMITED),
    (503, "The model is overloaded. Please try again later.", Kind.OVERLOADED),
    # OpenRouter, DeepSeek, xAI, Groq, Mistral, Together, Fireworks, Moonshot
    (402, "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 4", Kind.QUOTA_EXHAUSTED),
    (403, "Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys", Kind.QUOTA_EXHAUSTED),
    (400, "nobody/nothing is not a valid model ID", Kind.MODEL_NOT_FOUND),
    (404, "No endpoints found for nobody/nothing.", Kind.MODEL_NOT_FOUND),
    (402, "Insufficient Balance", Kind.QUOTA_EXHAUSTED),
    (400, "Model Not Exist", Kind.MODEL_NOT_FOUND),
    (400, "Content Exists Risk", Kind.CONTENT_REFUSED),
    (400, "Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai.", Kind.AUTH_REJECTED),
    (429, "Your team has either used all available credits or reached its monthly spending limit.", Kind.QUOTA_EXHAUSTED),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", Kind.CONTEXT_OVERFLOW),
    (413, "Request too large for model `llama` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.", Kind.CONTEXT_OVERFLOW),
    (400, "The model `llama2` has been decommissioned and is no longer supported.", Kind.MODEL_NOT_FOUND),
    (400, '{"object":"error","message":"Invalid model: mistral-medium","type":"invalid_model","code":"1500"}', Kind.MODEL_NOT_FOUND),
    (429, "Service tier capacity exceeded for this model.", Kind.OVERLOADED),
    (400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", Kind.CONTEXT_OVERFLOW),
    (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000", Kind.CONTEXT_OVERFLOW),
    (412, "Account me is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices.", Kind.QUOTA_EXHAUSTED),
    (404, "Model not found, inaccessible, and/or not deployed", Kind.MODEL_NOT_FOUND),
    (400, "Invalid request: Your request exceeded model token limit: 8192", Kind.CONTEXT_OVERFLOW),
    # vLLM, llama.cpp, Ollama, Bedrock, gateways
    (404, '{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError"}', Kind.MODEL_NOT_FOUND),
    (400, "request (4200 tokens) exceeds the available context size (4096 tokens), try increasing it", Kind.CONTEXT_OVERFLOW),
    (503, "Loading model", Kind.OVERLOADED),
    (404, "model 'x' not found, try pulling it first", Kind.MODEL_NOT_FOUND),
    (429, "ThrottlingException: Too many tokens, please wait before trying again.", Kind.RATE_LIMITED),
    (400, "ValidationException: Input is too long for requested model.", Kind.CONTEXT_OVERFLOW),
    (400, "The provided model identifier is invalid.", Kind.MODEL_NOT_FOUND),
    (403, "You don't have access to the model with the specified model ID.", Kind.MODEL_NOT_FOUND),
    (502, "<html><h1>502 Bad Gateway</h1></html>", Kind.SERVER_ERROR),
    (403, "<html>Attention Required! | Cloudflare</html>", Kind.AUTH_REJECTED),
    (422, "tools.0.function.parameters: Input should be an object", Kind.INVALID_REQUEST),
]  # fmt: skip


@pytest.mark.parametrize(("status", "said", "kind"), SAID)
def test_what_providers_say(status: int, said: str, kind: Kind) -> None:
    assert kind_of(status, said, upstream=status) is kind
    assert of_error("BadRequestError", f"Error code: {status} - {{'error': {{'message': {said!r}}}}}") is kind


def test_the_middlemans_own_words_are_all_known() -> None:
    assert set(OURS) == set(STATUS)
    for error, status in STATUS.items():
        assert kind_of(status, error=error) is OURS[error]
        text = (
            f"Error code: {status} - {{'error': {{'message': 'no', 'type': '{error}', 'code': '{error}'}}}}"
        )
        assert of_error("", text) is OURS[error]
    assert kind_of(200, "<html>", upstream=200, note="malformed") is Kind.MALFORMED
    assert (
        kind_of(200, '{"error": {"message": "Overloaded"}}', upstream=200, note="malformed")
        is Kind.OVERLOADED
    )
    assert kind_of(200, upstream=200, note="empty") is Kind.EMPTY
    assert kind_of(0, client_gone=True) is Kind.CLIENT_GONE
    assert kind_of(200, upstream=200) is Kind.OK


def test_errors_of_clients_and_of_others() -> None:
    assert of_error("APITimeoutError", "Request timed out.") is Kind.CLIENT_TIMEOUT
    assert of_error("", "RetryError[<Future raised RateLimitError>]") is Kind.RATE_LIMITED
    assert of_error("openai.InternalServerError", "", 503) is Kind.OVERLOADED
    assert of_error("APIConnectionError", "Connection error.") is Kind.CONNECTION_LOST
    for kind, message in (
        ("ValueError", "expected 404 or 500, got status 429 in tool output"),
        ("RuntimeError", "model 'm' not found in the registry of my tool"),
        ("ConnectionRefusedError", "[Errno 111] Connection refused"),
        ("TimeoutError", ""),
    ):
        assert of_error(kind, message) is None, message


@given(
    st.integers(-5, 999),
    st.text(),
    st.none() | st.text(),
    st.none() | st.integers(-5, 999),
    st.booleans(),
    st.text(),
)
def test_no_text_is_too_odd(
    status: int, said: str, error: str | None, upstream: int | None, gone: bool, note: str
) -> None:
    assert kind_of(status, said, error=error, upstream=upstream, client_gone=gone, note=note) in Kind
    found = of_error(error or "", said, upstream)
    assert found is None or found in Kind
