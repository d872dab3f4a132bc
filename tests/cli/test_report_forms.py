"""The forms of a report: what they hold, and that nothing from outside works as markup in them."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hawk.cli import report_csv, report_html, report_junit, report_markdown, report_text
from hawk.cli import report_words as words
from hawk.core.attempts.report import Estimate, Report
from hawk.core.attempts.results import Pair
from hawk.core.text import strip_controls
from tests.cli import reports
from tests.store.hostile import NAMES

FORMS = {
    "text": lambda report: report_text.render(report, everything=True),
    "html": report_html.render,
    "markdown": report_markdown.render,
    "junit": report_junit.render,
    "csv": report_csv.render,
}
CASES = {
    "mixed": reports.mixed(),
    "passed": reports.passed(),
    "empty": reports.empty(),
    "hostile": reports.hostile(),
    "big": reports.big(1000, 3),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_every_form_of_every_report_is_harmless_text_and_always_the_same(form: str, case: str) -> None:
    made = FORMS[form](CASES[case])
    assert made == FORMS[form](CASES[case])
    plain = re.sub(r"\x1b\[\d*m", "", made) if form == "text" else made.replace("\r\n", "\n")
    assert strip_controls(plain) == plain
    made.encode("utf-8")


def test_a_report_through_json_is_the_same_report() -> None:
    for report in CASES.values():
        again = msgspec.json.decode(msgspec.json.encode(report), type=Report)
        for form in FORMS.values():
            assert form(again) == form(report)


# --- HTML


class Page(HTMLParser):
    """What a browser would make of it: elements, their attributes, and text."""

    VOID = frozenset({"meta", "br", "img", "line", "circle", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "div", "p"),
    *("h1", "h2", "b", "i", "span", "small", "ul", "ol", "li", "dl", "dt", "dd", "details", "summary", "pre"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "line", "circle", "code"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_page_has_only_elements_and_attributes_of_ours(case: str) -> None:
    page = Page(report_html.render(CASES[case]))
    assert page.unbalanced == []
    assert page.open == []
    assert {tag for tag, _ in page.elements} <= ALLOWED
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [
        name for name in names if name.startswith("on") or name in ("href", "src", "srcdoc", "action")
    ]
    styles = {value for _, attributes in page.elements if (value := attributes.get("style"))}
    assert all(re.fullmatch(r"(flex-grow:\d+|width:[\d.]+%)", style) for style in styles)


def test_a_page_needs_nothing_from_elsewhere_and_forbids_scripts() -> None:
    text = report_html.render(CASES["hostile"])
    policies = [a for tag, a in Page(text).elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert "<script>alert(1)</script>" in " ".join(Page(text).texts)


def test_tables_of_a_page_have_captions_and_scopes() -> None:
    page = Page(report_html.render(CASES["mixed"]))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption") > 4
    heads = [attributes.get("scope") for tag, attributes in page.elements if tag == "th"]
    assert set(heads) == {"col", "row"}
    regions = [a for tag, a in page.elements if a.get("role") == "region"]
    assert all(region["aria-label"] and region["tabindex"] == "0" for region in regions)
    assert ("html", {"lang": "en"}) in page.elements


def test_a_page_shows_every_pair_and_each_attempts_id() -> None:
    page = Page(report_html.render(CASES["mixed"]))
    text = " ".join(page.texts)
    for name in ("easy", "saved", "hard", "slow", "lost", "open"):
        assert name in page.texts
    assert "hard-2" in text
    assert "2 of 9 fail" in text
    assert text.index("hard") < text.index("easy")


# --- JUnit

SUITE = {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}


@pytest.mark.parametrize("case", CASES)
def test_junit_has_the_shape_that_build_servers_validate(case: str) -> None:
    root = ET.fromstring(report_junit.render(CASES[case]))
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", "tests", "failures", "errors", "time"}
    cases = []
    for suite in root:
        assert suite.tag == "testsuite"
        assert SUITE - {"timestamp"} <= set(suite.attrib) <= SUITE
        found = list(suite)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(one.find(tag) is not None for one in found)
        assert int(suite.attrib["tests"]) == len(found)
        for one in found:
            assert one.tag == "testcase"
            assert set(one.attrib) == {"classname", "name", "time"}
            assert one.attrib["name"]
            assert re.fullmatch(r"\d+\.\d{3}", one.attrib["time"])
            kinds = [child.tag for child in one]
            assert kinds[-1] == "system-out"
            assert kinds[:-1] in ([], ["failure"], ["error"], ["skipped"])
            for child in one:
                assert not list(child)
                assert child.tag in ("system-out", "skipped") or {"message", "type"} == set(child.attrib)
        cases += [(one.attrib["classname"], one.attrib["name"]) for one in found]
    assert len(cases) == len(CASES[case].pairs) == int(root.attrib["tests"])


def test_junit_tells_failures_from_errors_and_what_is_still_to_come() -> None:
    root = ET.fromstring(report_junit.render(CASES["mixed"]))
    kinds = {one.attrib["name"]: next(child.tag for child in one) for one in root.iter("testcase")}
    assert kinds == {
        "easy": "system-out",
        "saved": "system-out",
        "hard": "failure",
        "slow": "failure",
        "lost": "error",
        "open": "skipped",
    }
    failure = next(one for one in root.iter("testcase") if one.attrib["name"] == "hard").find("failure")
    assert failure is not None
    assert failure.attrib["message"] == "0 of 2 attempts passed: tests pass: 2 of 9 fail"
    assert "because of hard" in (failure.text or "")


def test_junit_names_are_unique_though_pairs_look_alike() -> None:
    report = reports.mixed()
    alike = ["a\x00", "a", "a\x1b[2J", "\u202ea"]
    report.pairs = [
        msgspec.structs.replace(report.pairs[0], pair=Pair("t", name, "m.x", "g.y")) for name in alike
    ]
    root = ET.fromstring(report_junit.render(report))
    names = [(one.attrib["classname"], one.attrib["name"]) for one in root.iter("testcase")]
    assert len(set(names)) == 4
    assert {classname for classname, _ in names} == {"t.g_y.m_x"}


# --- CSV


@pytest.mark.parametrize("case", CASES)
def test_csv_has_a_line_an_attempt_and_no_formula(case: str) -> None:
    report = CASES[case]
    text = report_csv.render(report)
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    assert tuple(head) == report_csv.COLUMNS
    assert len(rows) == sum(len(row.attempts) for row in report.pairs)
    assert {len(row) for row in rows} <= {len(head)}
    assert text.count("\r\n") == len(rows) + 1
    for row in rows:
        assert [cell for cell in row if cell[:1] in tuple("=+-@＝＋－＠\t\r\n")] == []


def test_csv_says_what_became_of_each_attempt_and_pair() -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv.render(CASES["mixed"]))))
    found = {(row["sample"], row["attempt"]): row for row in rows}
    assert found["saved", "1"]["outcome"] == "fail"
    assert found["saved", "1"]["pair_result"] == found["saved", "2"]["pair_result"] == "flaky"
    assert [found["saved", k]["representative"] for k in "12"] == ["false", "true"]
    assert found["hard", "2"] == {
        "task": "coding",
        "agent": "react",
        "model": reports.MODEL,
        "sample": "hard",
        "attempt": "2",
        "outcome": "fail",
        "pair_result": "failed",
        "representative": "false",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": "60.000",
        "tokens": "100",
        "cost_usd": "0.250000",
        "reason": "",
        "workspace": "true",
        "uuid": "hard-2",
        "directory": reports.pair("hard").directory,
    }


# --- Markdown


def test_markdown_is_short_and_folds_the_rest() -> None:
    text = report_markdown.render(CASES["big"])
    assert len(text.splitlines()) < 150
    assert len(text) < 60_000
    assert text.count("<details>") == text.count("</details>") > 0
    assert "more: `hawk report --all`" in text


def test_markdown_of_hostile_names_has_no_markup_mentions_or_links() -> None:
    text = report_markdown.render(CASES["hostile"])
    tags = set(re.findall(r"<[^>]*>", text))
    assert tags <= {"<details>", "</details>", "<summary>", "</summary>"}
    assert not re.search(r"@\w", text)
    assert "://" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            inside = "".join(re.sub(r"\\.", "", cell) for cell in cells)
            assert not set("`*_[]()~$!") & set(inside), line
    blocks = text.split("\n\n")
    for block in blocks:
        rows = [re.split(r"(?<!\\)\|", line) for line in block.splitlines() if line.startswith("|")]
        assert len({len(row) for row in rows}) <= 1, block


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@team", "@&#8203;team"),
        ("see #12", "see #&#8203;12"),
        ("https://evil.example", "https:&#8203;//evil.example"),
        ("www.evil.example", "www&#8203;.evil.example"),
        ("GH-12", "GH&#8203;-12"),
        ("a|b", r"a\|b"),
        (r"a\|b", r"a\\\|b"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ("two\nlines", "two lines"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_text_is_made_inert(text: str, shown: str) -> None:
    assert report_markdown.inert(text) == shown


# --- words


def test_states_are_told_apart() -> None:
    found = {row.pair.sample: words.state(row) for row in CASES["mixed"].pairs}
    assert found == {
        "easy": words.State.PASSED,
        "saved": words.State.FLAKY,
        "hard": words.State.FAILED,
        "slow": words.State.FAILED,
        "lost": words.State.NO_RESULT,
        "open": words.State.UNDECIDED,
    }


def test_a_biased_report_says_why_it_has_no_pass_at_k() -> None:
    report = reports.mixed()
    report.biased = "it cancels"
    found = words.rates(report)
    assert [rate.name for rate in found] == ["any pass", "pass@1", "pass@k"]
    assert (found[-1].estimate, found[-1].why_not) == (None, "it cancels")
    for form in ("text", "html", "markdown"):
        assert "it cancels" in FORMS[form](report)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.money, None, "–"),
        (words.money, 0.0, "$0.00"),
        (words.money, 0.00123, "$0.0012"),
        (words.money, 1234.5, "$1,234.50"),
        (words.hours, 0.0, "0"),
        (words.hours, 85.7, "0.024"),
        (words.hours, 3600 * 39.69, "39.7"),
        (words.short, 999, "999"),
        (words.short, 12_345, "12.3k"),
        (words.short, 999_999, "1000k"),
        (words.short, 4_560_000_000, "4.56G"),
        (words.seconds, None, "–"),
        (words.seconds, 0.04, "0.0s"),
        (words.seconds, 823.9, "13m 43s"),
        (words.estimate, None, "–"),
        (words.estimate, Estimate(0.5, 0.25, 0.75, 4), "50.0 % (25.0–75.0)"),
    ],
)
def test_figures_for_people(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]


@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1))
def test_no_text_breaks_out_of_any_form(name: str) -> None:
    row = msgspec.structs.replace(
        CASES["mixed"].pairs[2], pair=Pair(name, name, name, name), explanation=name
    )
    report = msgspec.structs.replace(CASES["mixed"], job_id=name, pairs=[row], problems=[name])
    page = Page(report_html.render(report))
    assert (page.unbalanced, page.open) == ([], [])
    assert {tag for tag, _ in page.elements} <= ALLOWED
    [case] = ET.fromstring(report_junit.render(report)).iter("testcase")
    assert case.attrib["name"]
    _, *rows = csv.reader(io.StringIO(report_csv.render(report), newline=""))
    assert [cell for cells in rows for cell in cells if cell[:1] in tuple("=+-@＝＋－＠\t\r\n")] == []
    assert not re.search(r"@\w|://|<script", report_markdown.render(report))
    text = re.sub(r"\x1b\[\d*m", "", report_text.render(report, everything=True, columns=80))
    assert strip_controls(text) == text


def test_hostile_names_are_all_in_the_report_that_tests_them() -> None:
    assert {row.pair.sample for row in CASES["hostile"].pairs} >= set(NAMES)
