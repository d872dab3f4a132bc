"""Addresses that a job may not send the middleman to."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from hawk.middleman.address import forbidden_address


@given(st.ip_addresses(network="169.254.0.0/16") | st.ip_addresses(network="fe80::/10"))
def test_no_policy_allows_link_local_addresses(address: object) -> None:
    assert forbidden_address(str(address), policy="any") is not None
    assert (
        forbidden_address(f"::ffff:{address}" if ":" not in str(address) else f"{address}%1", policy="any")
        is not None
    )


@given(st.ip_addresses())
def test_public_leaves_only_the_internet(address: object) -> None:
    plain = ipaddress.ip_address(str(address))
    if not plain.is_global or plain.is_multicast:
        assert forbidden_address(str(address), policy="public") is not None
    assert forbidden_address(str(address), policy="none") is not None


def test_a_middleman_that_listens_everywhere_is_found_on_loopback() -> None:
    assert forbidden_address("127.0.0.1", policy="any", port=4000, own=[("0.0.0.0", 4000)]) is not None
    assert forbidden_address("127.0.0.1", policy="any", port=8080, own=[("0.0.0.0", 4000)]) is None
    assert forbidden_address("10.1.2.3", policy="any", port=4000, own=[("10.1.2.3", 4000)]) is not None
