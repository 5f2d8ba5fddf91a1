"""The page: well-formed, whole, escaped, self-contained, small and fast."""

import json
import re
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from typer.testing import CliRunner

from precad.cli.app import app
from precad.privacy.ledger import read
from precad.report.page import render, templates, write_report
from precad.report.run import ReportError, Run, read_run
from tests.report.fake_runs import FakeRun

WHOLE_PARTS = ("learning", "privacy", "clients", "noise", "certificate", "cost", "configuration", "limits")


def page_of(path: Path, fake: FakeRun | None = None) -> str:
    return render([read_run((fake or FakeRun()).write(path / "mine"))])


def tree_of(page: str) -> ElementTree.Element:
    """The page is XML too, but for its script, its style and its attributes without value."""
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page.removeprefix("<!doctype html>"), flags=re.DOTALL)
    text = re.sub(r" (data-status|open)(?=[ >])", r" \1=''", text)
    return ElementTree.fromstring(text)  # noqa: S314 - our own page


def test_it_is_well_formed_and_has_every_part(tmp_path: Path) -> None:
    tree = tree_of(page_of(tmp_path))
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert set(WHOLE_PARTS) <= set(ids)
    for element in tree.iter():
        for named in (element.get("aria-labelledby") or "").split():
            assert named in ids


def test_every_number_is_the_runs_own(tmp_path: Path) -> None:
    fake = FakeRun()
    tree = tree_of(page_of(tmp_path, fake))
    tiles = {
        element.get("id", "").removeprefix("tile-"): element.find(".//data")
        for element in tree.iter("div")
        if element.get("class") == "tile"
    }
    values = {name: float(found.get("value", "")) for name, found in tiles.items() if found is not None}
    end = fake.line(6)
    assert values["accuracy"] == end["test_accuracy"]
    assert values["epsilon-server"] == end["epsilon_server"]
    assert values["epsilon-clients"] == end["epsilon_clients"]
    assert (values["rounds"], values["rejected"]) == (6, 6)
    assert values["time"] == pytest.approx(6 * 0.376)
    numbers = next(element for element in tree.iter("details") if element.get("id") == "numbers")
    shown = [[float(cell.get("value", "")) for cell in row.iter("data")] for row in numbers.iter("tr")][1:]
    assert shown == [
        [n, line["test_accuracy"], line["test_loss"], line["epsilon_server"], line["epsilon_clients"]]
        for n in (2, 4, 6)
        for line in [fake.line(n)]
    ]


def test_the_curves_are_the_figures(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    data = re.search(r"id='accuracy'.*?application/json'>(.*?)</script>", page, re.DOTALL)
    assert data is not None
    (series,) = json.loads(data[1])["series"]
    assert series["x"] == [2, 4, 6]
    assert series["y"] == pytest.approx([1 - 1 / 3, 1 - 1 / 5, 1 - 1 / 7], rel=1e-5)


HOSTILE = (
    "<script>alert(1)</script>",
    "{{ 7*7 }}",
    "{% for x in y %}",
    "x' onmouseover='alert(1)",
    'x" onmouseover="alert(1)',
    "</script></svg></style>",
    "<!-- &amp; `code`",
)


def run_that_says(text: str, path: Path, protocol: str) -> Run:
    """A run with this text wherever a run has text."""
    about = {"version": text, "versions": {text: text}}
    more = f"defence = {json.dumps(text)}\n" if protocol == "plain" else ""
    fake = FakeRun(names=["a", text], rejected=[text], protocol=protocol, about=about, more=more)
    run = read_run(fake.write(path))
    rounds = tuple(replace(line, seconds={text: 1.0}) for line in run.rounds)
    task, malicious = replace(run.config.task, dataset=text), replace(run.config.malicious, attack=text)
    config = replace(run.config, task=task, malicious=malicious)
    entries = {**run.entries, text: {text: text}}
    return replace(run, name=text, config_digest=text, rounds=rounds, config=config, entries=entries)


@pytest.mark.parametrize("protocol", ["precad", "plain"])
@pytest.mark.parametrize("evil", HOSTILE)
def test_whatever_a_run_says_is_text(tmp_path: Path, evil: str, protocol: str) -> None:
    """The page has the elements and the attributes that it has for a harmless text, and the hostile one in full."""
    hostile, harmless = (
        run_that_says(text, tmp_path / name, protocol) for text, name in ((evil, "evil"), ("harmless", "harmless"))
    )
    for many in (1, 2):
        page, other = (render([run] * many, live=run.name) for run in (hostile, harmless))
        assert page.count("<script") == other.count("<script")
        tree = tree_of(page)
        assert [(element.tag, *element.attrib) for element in tree.iter()] == [
            (element.tag, *element.attrib) for element in tree_of(other).iter()
        ]
        assert tree.get("data-live") == evil
        texts = [element.text for element in tree.iter()]
        assert texts.count(evil) >= 3
        assert "49" not in texts


def test_templates_escape_and_know_every_name() -> None:
    assert templates().from_string("<b>{{ text }}</b>").render(text="<&'\"") == "<b>&lt;&amp;&#39;&#34;</b>"
    with pytest.raises(UndefinedError, match="'nobody' is undefined"):
        templates().from_string("{{ nobody }}").render()


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    fake = FakeRun(names=["a", evil, "'\"&</svg>"], rejected=[evil], about={"version": evil})
    page = render([read_run(fake.write(tmp_path / "<img src=x onerror=alert(2)>"))])
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    tree_of(page)
    assert page.count("<script") == 6  # four charts, the grid, ours


def test_nothing_comes_from_elsewhere_and_the_policy_names_what_is_here(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert not re.findall(r"(?:src|href)='(?!data:)[^']*'|url\(|@import|style='| on\w+='", page)
    assert "default-src 'none'" in page
    assert "unsafe" not in page.split("</head>")[0]
    assert "connect-src" not in page
    assert "/home/me" not in page  # where the data are is nobody's business


def test_a_seed_a_budget_and_the_digests_are_said(tmp_path: Path) -> None:
    page = page_of(tmp_path, FakeRun(more="budget = 5.0"))
    for words in (
        "the noise of this run is not private",
        "budget ε = 5",
        "c0ffee",
        read(tmp_path / "mine" / "ledger.sqlite").last_link,
        "seed 1: not private",
        "torch",
    ):
        assert words in page
    private = FakeRun().write(tmp_path / "private")
    (private / "config.toml").write_text((private / "config.toml").read_text().replace("seed = 1\n", ""))
    assert "not private" not in render([read_run(private)])


def test_a_curve_of_many_figures_ends_with_the_last_one(tmp_path: Path) -> None:
    page = page_of(tmp_path, FakeRun(rounds=2004))
    (drawn,) = re.findall(r"<figure class='chart' id='epsilon'>.*?<script[^>]*>(.*?)</script>", page, re.DOTALL)
    server = json.loads(drawn)["series"][0]
    assert (server["x"][-1], server["y"][-1]) == (2004, 1002)
    assert all(y == x / 2 for x, y in zip(server["x"], server["y"], strict=True))
    assert len(server["x"]) <= 400


def test_hidden_participants_are_not_on_the_page(tmp_path: Path) -> None:
    page = render([replace(read_run(FakeRun().write(tmp_path / "mine")), hidden=True)])
    assert "would void the amplification" in page
    for words in ("client-3", "id='grid'", "Rejected updates"):
        assert words not in page


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    for done in (0, 1):
        page = render([read_run(FakeRun().write(tmp_path / f"run-{done}", done=done))])
        tree_of(page)
        assert f"not finished: {done} of 6 rounds" in page


@pytest.mark.parametrize("protocol", ["plain", "cdp", "ldp", "ddp"])
def test_the_other_protocols(tmp_path: Path, protocol: str) -> None:
    page = page_of(tmp_path, FakeRun(protocol=protocol))
    tree_of(page)
    assert "no robustness certificate" in page
    assert "recorded only where there is a ledger" in page


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    one, two = FakeRun(), FakeRun(rounds=8, protocol="plain")
    page = render([read_run(one.write(tmp_path / "one")), read_run(two.write(tmp_path / "two"))])
    tree_of(page)
    for words in ("2 runs compared", "training.rounds", "times a plain round", "one, against a server"):
        assert words in page
    with pytest.raises(ReportError, match="1 to 8 runs, got 0"):
        render([])


def test_a_huge_run_is_small_and_fast(tmp_path: Path) -> None:
    """5,000 rounds of 1,000 clients; the time is that of the process, whatever else the machine does."""
    names = [f"client-{i:04d}" for i in range(1000)]
    path = FakeRun(rounds=5000, names=names, rejected=names[::50]).write(tmp_path / "huge")
    render([read_run(FakeRun().write(tmp_path / "small"))])  # loads the accountant
    start = time.process_time()
    page = render([read_run(path)])
    assert time.process_time() - start < 2
    assert len(page.encode()) < 3_000_000
    assert re.search(r"900 more clients .*none of them .*rejected", page)


def test_the_command(tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine")
    result = CliRunner().invoke(app, ["report", str(path)])
    assert result.exit_code == 0, result.output
    assert (path / "report.html").read_text() == render([read_run(path)])
    result = CliRunner().invoke(app, ["report", str(path), str(path), "--out", str(tmp_path / "both.html")])
    assert result.exit_code == 0, result.output
    assert "2 runs compared" in (tmp_path / "both.html").read_text()
    for arguments, words in (
        ([str(tmp_path)], "there is no run in"),
        ([str(path), "--out", str(tmp_path / "no" / "such.html")], "cannot write"),
    ):
        result = CliRunner().invoke(app, ["report", *arguments])
        assert result.exit_code == 2
        assert words in result.stderr
        assert "Traceback" not in result.output


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine")
    (path / "report.html").mkdir()
    with pytest.raises(ReportError, match="cannot write"):
        write_report([read_run(path)], path / "report.html")
    assert [file.name for file in path.iterdir() if file.name.endswith(".draft")] == []


def test_the_cost_of_a_run_that_goes_on_says_after_which_round(tmp_path: Path) -> None:
    """Else the ε of the last look would stand for rounds that were played after it."""
    behind = render([read_run(FakeRun().write(tmp_path / "a", done=5))])
    assert behind.count("after round 4: later ones cost more") == 2
    assert "later ones cost more" not in render([read_run(FakeRun().write(tmp_path / "b"))])
    assert "if the two servers do not work together" in behind
    assert "if the two servers" not in render([read_run(FakeRun(protocol="ldp").write(tmp_path / "c"))])


def test_numbers_that_nobody_measured_are_no_crash(tmp_path: Path) -> None:
    run = read_run(FakeRun().write(tmp_path / "mine"))
    assert run.summary is not None
    assert "not timed" in render([replace(run, summary=replace(run.summary, plain_seconds=0.0))])
    with pytest.raises(ReportError, match=r"mine.*impossible"):
        render([replace(run, rounds=tuple(replace(line, update_norm=1e200) for line in run.rounds))])
