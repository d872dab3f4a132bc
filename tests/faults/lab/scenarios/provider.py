"""Providers that say what is wrong: every call, or nearly, is refused or answered by nonsense."""

from __future__ import annotations

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case, Probe
from tests.faults.lab.replies import answered, by_sample, filtered, fresh, in_turns, late
from tests.faults.lab.scenario import scenario
from tests.middleman.certificate import self_signed
from tests.middleman.provider_answers import error
from tests.middleman.provider_faults import (
    context_overflow,
    empty_output,
    malformed,
    not_found,
    overloaded,
    rate_limited,
    unauthorized,
    unavailable,
)
from tests.middleman.provider_raw import Answer

MANY = 100
"""Retries of a call: nearly without end, as Inspect has it."""


def _asking(bench: Bench, **config: object) -> Case:
    """Some attempts that ask the model a few times."""
    samples = bench.samples(bench.number(2, 5), ["ask", bench.number(1, 3)])
    return bench.case(samples, **config)  # type: ignore[arg-type]


@scenario("provider.rate_limited", least=Severity.WARNING)
def rate_limit_with_a_date(bench: Bench) -> Case:
    wait = str(bench.number(1, 4))
    bench.model(fresh(lambda: rate_limited(wait), bench.between(0, 0.5)))
    return _asking(bench, max_retries=MANY, must=["429"])


@scenario("provider.rate_limited", least=Severity.WARNING)
def rate_limit_without_a_date(bench: Bench) -> Case:
    bench.model(fresh(lambda: rate_limited(None), bench.between(0, 0.5)))
    return _asking(bench, max_retries=MANY, must=["429"])


@scenario("provider.overloaded", least=Severity.WARNING)
def provider_overloaded(bench: Bench) -> Case:
    fault = bench.rng.choice([overloaded, unavailable])
    bench.model(fresh(fault, bench.between(0, 1)), kind="calm")
    return _asking(bench, max_retries=MANY, must=["529" if fault is overloaded else "503"])


@scenario("provider.server_error", least=Severity.WARNING, must_not=["middleman.proxy_fault"])
def server_errors(bench: Bench) -> Case:
    status = bench.rng.choice([500, 500, 502])
    says = bench.rng.choice(["The server had an error", "internal failure", "upstream connect error"])
    bench.model(fresh(lambda: error(status, "server_error", says), bench.between(0, 1)), kind="calm")
    return _asking(bench, max_retries=MANY, must=[str(status)])


@scenario("provider.auth_rejected", least=Severity.FATAL)
def wrong_key(bench: Bench) -> Case:
    bench.model(fresh(unauthorized, bench.between(0, 0.5)))
    return _asking(bench, must=["401"])


@scenario("provider.auth_rejected", least=Severity.FATAL)
def key_without_permission(bench: Bench) -> Case:
    bench.model(
        fresh(lambda: error(403, "permission_error", "Your key does not have access to this resource"))
    )
    return _asking(bench, must=["403"])


@scenario("provider.quota_exhausted", least=Severity.STUCK, must_not=["provider.rate_limited"])
def quota_used_up(bench: Bench) -> Case:
    said = "You exceeded your current quota, please check your plan and billing details."
    bench.model(fresh(lambda: error(429, "insufficient_quota", said, None, "insufficient_quota")))
    return _asking(bench, max_retries=MANY, must=["429"])


@scenario("provider.quota_exhausted", least=Severity.STUCK)
def no_credit(bench: Bench) -> Case:
    said = "Your credit balance is too low to access the API."
    bench.model(fresh(lambda: error(402, "billing_error", said)))
    return _asking(bench, must=["402"])


@scenario("provider.model_not_found", least=Severity.FATAL)
def model_misspelt(bench: Bench) -> Case:
    model = bench.model(fresh(not_found, bench.between(0, 0.5)))
    return _asking(bench, must=["404", model.asked])


@scenario("provider.context_overflow")
def conversation_too_long(bench: Bench) -> Case:
    """Inspect makes an answer of it, and the attempt ends as if all were well."""
    bench.model(fresh(context_overflow))
    return _asking(bench, must=["400"])


@scenario("provider.context_overflow")
def agent_goes_on_with_too_long_a_conversation(bench: Bench) -> Case:
    bench.model(fresh(context_overflow, bench.between(0.4, 0.9)))
    return bench.case(bench.samples(bench.number(2, 4), ["ask", 300]), must=["400"])


@scenario("provider.invalid_request", least=Severity.STUCK)
def wrong_parameter(bench: Bench) -> Case:
    word = bench.word()
    said = f"Unrecognized request argument supplied: {word}"
    bench.model(fresh(lambda: error(400, "invalid_request_error", said, None, "unknown_parameter")))
    return _asking(bench, must=["400", word])


@scenario("provider.invalid_request")
def one_wrong_request_of_many(bench: Bench) -> Case:
    """One sample asks for what can't be; the others go on."""
    bad, word = bench.sample(["ask"]), bench.word()
    refused = fresh(lambda: error(400, "invalid_request_error", f"image {word} could not be parsed"))
    bench.model(by_sample({bad["input"].split()[1]: refused}, answered(0.7)))
    return bench.case(
        [*bench.samples(6, ["ask", 60]), bad],
        retry_on_error=0,
        present=lambda run: any(sample.error for sample in run.samples()),
        must=[word],
    )


@scenario("provider.content_refused")
def content_policy(bench: Bench) -> Case:
    said = "The response was filtered due to the prompt triggering the content management policy."
    bench.model(fresh(lambda: error(400, "invalid_request_error", said, None, "content_filter")))
    return _asking(bench)


@scenario("provider.content_refused")
def answers_cut_off_by_a_filter(bench: Bench) -> Case:
    bench.model(filtered())
    return bench.case(bench.samples(3, ["again", 200]))


@scenario("provider.malformed_response", least=Severity.WARNING)
def half_json(bench: Bench) -> Case:
    bench.model(fresh(malformed, bench.between(0, 0.5)), kind="calm")
    return _asking(bench, max_retries=MANY)


@scenario("provider.malformed_response", least=Severity.WARNING)
def login_page(bench: Bench) -> Case:
    page = b"<!DOCTYPE html><html><title>Sign in</title><form><input name=user></form></html>"
    html = [("Content-Type", "text/html; charset=utf-8")]
    bench.model(lambda request: Answer([page], headers=[*html]), kind="calm")
    return _asking(bench, max_retries=MANY)


@scenario("provider.empty_output", least=Severity.WARNING)
def nothing_said(bench: Bench) -> Case:
    bench.model(fresh(empty_output, bench.between(0, 0.4)))
    return bench.case(bench.samples(bench.number(2, 4), ["again", 1000]))


@scenario("provider.connect_refused", least=Severity.WARNING)
def nobody_listens(bench: Bench) -> Case:
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    bench.model(url=f"http://127.0.0.1:{port}/v1", kind="calm")
    samples = bench.samples(bench.number(2, 4), ["ask"])
    return bench.case(samples, max_retries=MANY, present=_begun(), must=[])


@scenario("provider.dns_or_tls", least=Severity.WARNING)
def no_such_host(bench: Bench) -> Case:
    bench.model(url=f"http://{bench.word()}.invalid/v1", kind="calm")
    return bench.case(bench.samples(3, ["ask"]), max_retries=MANY, present=_begun())


@scenario("provider.dns_or_tls", least=Severity.WARNING)
def certificate_of_nobody(bench: Bench) -> Case:
    bench.model(tls=self_signed(bench.folder), kind="calm")
    return bench.case(bench.samples(3, ["ask"]), max_retries=MANY, present=_begun())


@scenario("provider.client_timeout_too_short", least=Severity.WARNING, within=60)
def attempt_timeout_below_the_answer(bench: Bench) -> Case:
    seconds = bench.number(2, 4)
    bench.model(
        in_turns(
            *(lambda request, extra=extra: late(_good(request), seconds + extra) for extra in (4, 6, 9))
        ),
        kind="calm",
    )
    return _asking(bench, attempt_timeout=seconds, max_retries=MANY)


def _good(request: object) -> Answer:
    from tests.middleman.provider_answers import chat
    from tests.middleman.provider_raw import Received

    assert isinstance(request, Received)
    return chat(request.json(), ("42",))


def _begun() -> Probe:
    from tests.faults.lab.run import marked

    return marked("begin")
