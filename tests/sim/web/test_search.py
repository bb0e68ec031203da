"""What is found as one types, what tells campaigns of one name apart, and runs that are taken out of a collection."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from analysis.results import MetricValue
from analysis.store import PendingRun, Store, notes
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign
from tests.conftest import two_hosts
from tests.support.called import called
from web.app import create_app

#: Ids of runs: of a campaign, of the same with another stack, and an imported one.
RENO, CUBIC, IMPORTED = ("abcd" + "1" * 20, "abcd" + "2" * 20, "beef" + "3" * 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two campaigns called evening, and an import; one run has a note. Tests leave it as it was."""
    results = tmp_path_factory.mktemp("search") / "results"
    scenario = two_hosts(duration_s=1.0)
    with Store.open(results) as store:
        evening = NewCampaign("e1" * 8, "evening", "A slow evening", "e.yaml", "name: evening", {}, "sim", 1, 1)
        other = replace(evening, id="e2" * 8, overrides={"stack": "cubic"})
        for new, run_id in ((evening, RENO), (other, CUBIC)):
            store.begin_campaign(new, [[("network.reverse.rate", "28.8 kbit/s")]], [(0, 0, run_id)])
            store.end_campaign(new.id, complete=True)
        for run_id in (RENO, CUBIC, IMPORTED):
            rows = [MetricValue("throughput", "f", 1e6, "rate")]
            attempt = store.staging_folder(run_id)
            (attempt / "notes.txt").write_text("x" * 500)
            store.commit_run(PendingRun(run_id, "sim", Documents(scenario, {}), rows, [], 1, attempt))
        imports = NewCampaign("f0" * 8, "imports", "Imported captures", "a.pcap", "", {}, "import", 1, 1)
        store.add_member(imports, [("file", "a.pcap")], IMPORTED)
        notes.write(store, CUBIC, "the modem hung up", ["odd"])
    return results


@pytest.fixture(scope="module")
def site(folder: Path) -> FlaskClient:
    return create_app(folder).test_client(use_cookies=False)


@pytest.mark.parametrize(
    ("words", "kind", "address"),
    [("slow EVENING", "Campaigns", "/campaigns/e1e1e1e1e1e1e1e1"), (RENO[:8], "Runs", f"/runs/{RENO}"),
     ("evening 28.8", "Runs", f"/runs/{CUBIC}"), ("hung modem", "Notes", f"/runs/{CUBIC}#note"),
     ("odd", "Notes", f"/runs/{CUBIC}#note"), ("ack-filtering", "Docs", "/docs#policy-ack-filtering"),
     ("retransmission", "Docs", "/docs#metric-retransmissions"), ("Repetitions", "Docs", "/docs/guide#"),
     ("asym-fig8 reconstruction", "Docs", "/docs/studies/asym#")],
)  # fmt: skip
def test_one_search_finds_campaigns_runs_notes_and_docs(site: FlaskClient, words: str, kind: str, address: str) -> None:
    page = site.get("/search", query_string={"q": words}).text
    (of_kind,) = re.findall(rf"<h2>{kind}</h2>(.*?)</ul>", page, re.DOTALL)
    assert f'href="{address}' in of_kind


def test_what_lacks_one_of_the_words_is_not_found(site: FlaskClient) -> None:
    assert "Nothing has all words of “evening %”." in site.get("/search?q=evening+%25").text
    assert "<h2>" not in site.get("/search?q=").text


@pytest.mark.parametrize(
    "address",
    ["/", "/campaigns", "/campaigns/e2e2e2e2e2e2e2e2", "/campaigns/e2e2e2e2e2e2e2e2/explore", f"/runs/{CUBIC}",
     "/compare", "/compare?point=e1e1e1e1e1e1e1e1:0&point=e2e2e2e2e2e2e2e2:0", "/search?q=evening"],
)  # fmt: skip
def test_campaigns_of_one_name_are_told_apart_on_every_page(site: FlaskClient, address: str) -> None:
    assert "stack=cubic, 20" in site.get(address).text


def test_a_name_that_is_given_once_says_no_more(site: FlaskClient, folder: Path) -> None:
    with Store.open(folder) as store:
        store.set_aside("e1" * 8, "archived")
        assert "stack=cubic" not in site.get("/campaigns").text
        store.restore("e1" * 8)


@pytest.mark.parametrize(
    "words", [("export", "values"), ("export", "wide"), ("measure",), ("copy",), ("results",), ("runs",)]
)
def test_commands_say_which_campaign_a_prefix_is(words: tuple[str, ...], folder: Path) -> None:
    more = {"export": ("--out", folder.parent / "out.csv"), "copy": (folder.parent / "other",)}.get(words[0], ())
    status, _, err = called(*words, "e2", *more, "--results", folder)
    assert status == 0, err
    assert "'e2' is campaign e2e2e2e2e2e2e2e2: evening" in err


@pytest.mark.parametrize("action", ["archive", "delete"])
def test_an_imported_run_is_set_aside_on_its_page_and_restored(site: FlaskClient, folder: Path, action: str) -> None:
    page = site.get(f"/runs/{IMPORTED}").text
    assert f'action="/runs/{IMPORTED}/{action}"' in page
    assert "500 B of files go; you can restore it for a day" in page
    answer = site.post(f"/api/runs/{IMPORTED}/{action}", json={}).get_json()
    assert site.get("/search?q=imports").text.count("/campaigns/f0") == 0
    assert f"is {action}d" in answer["message"]
    assert ">Restore</button>" in site.get(f"/campaigns/{answer['campaign']}").text
    restored = site.post(f"/api/campaigns/{answer['campaign']}/restore", json={}).get_json()
    assert restored["campaign"] == "f0" * 8
    assert "1 of 1" in site.get("/campaigns?q=imports").text
    # The same on the command line.
    status, out, err = called(action, IMPORTED[:6], *(("--yes",) if action == "delete" else ()), "--results", folder)
    assert status == 0, err
    (own,) = re.findall(r"undelete (\S+?)`", out)
    assert called("undelete", own, "--results", folder)[1] == f"imports ({'f0' * 8}) is listed again\n"


def test_a_run_that_a_campaign_asks_for_stays(site: FlaskClient) -> None:
    assert f"/runs/{RENO}/delete" not in site.get(f"/runs/{RENO}").text
    answer = site.post(f"/api/runs/{RENO}/delete", json={})
    assert answer.status_code == 409
    assert "Campaign evening asks for this run: delete the campaign" in answer.get_json()["error"]


def test_runs_of_campaigns_of_one_name_are_told_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    status, out, _ = called("runs", "--results", folder)
    assert status == 0
    assert {"evening e1e1e1e1", "evening e2e2e2e2"} <= set(re.findall(r"evening e\w+", out))
    assert "evening e" not in called("runs", "e1", "--results", folder)[1]


@pytest.mark.parametrize("words", ["Überlänge", "überlänge", "ÜBERLÄNGE"])
def test_umlauts_of_titles_and_notes_are_found_in_either_case(tmp_path: Path, words: str) -> None:
    with Store.open(tmp_path) as store:
        new = NewCampaign("e1" * 8, "long", "Die Überlänge", "e.yaml", "", {}, "sim", 1, 1)
        store.begin_campaign(new, [[]], [(0, 0, RENO)])
        attempt = store.staging_folder(RENO)
        store.commit_run(PendingRun(RENO, "sim", Documents(two_hosts(duration_s=1.0), {}), [], [], 1, attempt))
        notes.write(store, RENO, "wegen Überlänge", [])
    client = create_app(tmp_path).test_client()
    assert "Die Überlänge" in client.get("/campaigns", query_string={"q": words}).text
    hits = client.get("/search", query_string={"q": words}).text
    assert "Die Überlänge" in hits
    assert "wegen Überlänge" in hits
