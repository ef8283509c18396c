"""Who may ask the explorer, and for what. Requests are raw, as an attacker's would be."""

import http.client
import json
import re
from importlib.resources import files

import pytest

from polariscope.app.guard import LARGEST_BODY, check_binding
from polariscope.app.server import FILES
from polariscope.cli import main
from polariscope.findings import Findings
from polariscope.lab.store import Store

HOSTILE = '<img src=x onerror="document.title=\'broken into\'"><script>document.title="broken into"</script>'


def ask(served, path, method="GET", body=None, **headers):
    """Status, headers and body of an answer; names of headers are written with _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    given = {"Host": f"127.0.0.1:{served.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        given = {"Content-Type": "application/json", "Content-Length": str(len(body))} | given
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return result


def test_the_page_may_load_nothing_and_run_nothing_that_is_not_ours(served):
    status, headers, _ = ask(served, "/")
    assert status == 200
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    for name in FILES:
        text = files("polariscope.app").joinpath("page", name).read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), name
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=\"", text), name


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost.evil.example", "", "127.0.0.1:1", None])
def test_another_host_name_is_refused(served, host):
    """A name that an attacker points at this machine, as in DNS rebinding."""
    assert ask(served, "/api/runs", Host=host)[0] in (400, 421)


def test_the_names_of_this_machine_are_taken(served):
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert ask(served, "/api/runs", Host=f"{name}:{served.port}")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
def test_a_foreign_page_can_neither_read_nor_start_anything(served, trained, headers):
    before = len(Store(trained[0]).runs())
    assert ask(served, "/api/runs", **headers)[0] == 403
    wish = json.dumps({"world": "mini-sprites", "objective": "vae"}).encode()
    assert ask(served, "/api/trainings", "POST", wish, **headers)[0] == 403
    assert len(Store(trained[0]).runs()) == before


def test_a_foreign_page_in_the_same_browser_gets_nothing(served, trained, chromium):
    """In a real browser, a page of another origin tries to read, to start a training, and to look into a frame."""
    before = len(Store(trained[0]).runs())
    page = chromium()
    page.open("data:text/html,<title>foreign</title>")
    page.wait("document.title === 'foreign'")
    read = f"fetch('{served.address}/api/runs').then(answer => answer.text(), () => 'refused')"
    assert page.ask(read) == "refused"
    wish = json.dumps({"world": "mini-sprites", "objective": "vae", "steps": 1})
    for more in ("", ", mode: 'no-cors'", ", headers: {'content-type': 'application/json'}"):
        start = f"fetch('{served.address}/api/trainings', {{method: 'POST', body: '{wish}'{more}}})"
        page.ask(f"{start}.then(() => 0, () => 0)")
    assert len(Store(trained[0]).runs()) == before
    frame = f"(() => {{ const f = document.createElement('iframe'); f.src = '{served.address}/'; "
    page.ask(frame + "return new Promise(done => { f.onload = () => done(1); document.body.append(f) }) })()")
    assert page.ask("frames.length") == 1
    assert page.ask("(() => { try { return frames[0].document.title } catch { return 'closed' } })()") == "closed"


def test_a_form_of_another_page_is_not_json(served):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert ask(served, "/api/jobs/1/stop", "POST", b"{}", Content_Type=kind)[0] == 415
    assert ask(served, "/api/runs", "DELETE")[0] == 405
    assert ask(served, "/api/runs", "OPTIONS", Origin="https://evil.example")[0] == 403


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else(served):
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(served, "/", **headers)[0] == 200
    assert ask(served, "/api/runs", **headers)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py",
        "/page/%2e%2e%2fserver.py",
        "/page/..%5cserver.py",
        "/page//etc/passwd",
        "/api/runs/..",
        "/api/runs/%2e%2e",
        "/api/runs/..%2f..%2fetc",
        "/api/runs/.%00",
        "/api/runs/" + "a" * 5000,
        "/documents/{run}/..",
        "/documents/{run}/%2e%2e%2f%2e%2e",
        "/documents/{run}/run.json",
        "/documents/%2e%2e/latest",
        "/../../etc/passwd",
    ],
)
def test_no_path_leads_out(served, trained, path):
    status, _, body = ask(served, path.format(run=trained[1]["first"].id))
    assert status in (400, 404), body
    assert b"root:" not in body
    assert b"def " not in body


def test_a_link_in_a_run_folder_leads_nowhere(served, trained, tmp_path):
    Findings("a secret", "Away.").save(tmp_path)
    folder = trained[1]["first"].path / "findings"
    folder.mkdir(exist_ok=True)
    (folder / "away").symlink_to(tmp_path)
    inner = folder / "inner"
    Findings("inner", "Here.").save(inner)
    (inner / "report.html").unlink()
    (inner / "report.html").symlink_to(tmp_path / "report.html")
    for kind in ("away", "inner"):
        assert ask(served, f"/documents/{trained[1]['first'].id}/{kind}")[0] == 404
    assert json.loads(ask(served, f"/api/runs/{trained[1]['first'].id}")[2])["documents"] == []


def test_a_strangers_report_runs_no_script(served, trained, chromium):
    run = trained[1]["second"]
    folder = run.path / "findings" / "hostile"
    Findings("hostile", "Hostile.").save(folder)
    (folder / "report.html").write_text(f"<title>as it was</title><p>shown</p>{HOSTILE}", encoding="utf-8")
    _, headers, _ = ask(served, f"/documents/{run.id}/hostile")
    assert headers["content-security-policy"].startswith("sandbox;")
    page = chromium()
    page.open(f"{served.address}/documents/{run.id}/hostile")
    page.wait("document.body.innerText.includes('shown')")
    assert page.ask("document.title") == "as it was"
    assert page.ask("origin") == "null"


def test_hostile_names_are_text(chromium, serving, tmp_path):
    """In the configuration, in labels, in the record and in metrics of a run that a stranger has made."""
    store = Store(tmp_path / "runs")
    config = {
        "world": {"name": HOSTILE},
        "objective": {"name": HOSTILE},
        "training": {"steps": HOSTILE, "seed": HOSTILE},
    }
    run = store.create(config, "hostile", status="done")
    run.update(result={"step": 3, HOSTILE: 1.0}, environment={HOSTILE: HOSTILE})
    run.write_metrics([(1, "train", HOSTILE, 1.0), (2, "train", HOSTILE, 0.5)])
    served = serving(tmp_path / "runs")
    try:
        page = chromium()
        for place in ("", f"run/{run.id}/learning", f"run/{run.id}/settings", f"run/{run.id}/documents"):
            page.open("about:blank")
            page.open(f"{served.address}/#/{place}")
            page.wait("document.querySelector('#main').dataset.shown")
            if "documents" not in place:
                page.wait("document.body.innerText.includes('onerror')")
            assert "broken into" not in page.ask("document.title")
            assert page.ask("document.querySelectorAll('#main img, #main script').length") == 0
    finally:
        served.close()


def test_requests_have_a_limit(served):
    headers = {"Content_Length": str(LARGEST_BODY + 1), "Content_Type": "application/json"}
    assert ask(served, "/api/trainings", "POST", **headers)[0] == 413  # before any of it has come
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    parts = (b" " * 2**18 for _ in range(5))  # chunked: no length is said
    try:
        connection.request("POST", "/api/trainings", parts, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server hung up in the middle of it, as it may
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "wish"),
    [
        ("decode", {"codes": []}),
        ("decode", {"codes": [[1.0]]}),
        ("decode", {"codes": [[1e39] * 5]}),
        ("decode", {"codes": [["a"] * 5]}),
        ("decode", {"codes": [[0.0] * 5] * 401}),
        ("walks", {"start": [0.0] * 5, "latents": [5]}),
        ("walks", {"start": [0.0] * 5, "latents": [0], "steps": 10_000_000}),
        ("start", {"command": "train"}),
        ("start", {"command": "examine; rm -rf /"}),
        ("attack", {"number": 0, "attack": "pgd", "norm": "l2"}),
    ],
)
def test_bad_wishes_are_refused_in_a_sentence(served, trained, path, wish):
    run = trained[1]["first"].id
    status, _, body = ask(served, f"/api/runs/{run}/{path}", "POST", json.dumps(wish).encode())
    assert status in (400, 422)
    assert 10 < len(json.loads(body)["error"]) < 400


@pytest.mark.parametrize(
    "wish",
    [
        {"world": "/etc/passwd", "objective": "vae"},
        {"world": "file", "objective": "vae"},
        {"world": "mini-sprites", "objective": "vae", "settings": {"__class__": 1}},
        {"world": "mini-sprites", "objective": "vae", "name": "../../x"},
        {"world": "mini-sprites", "objective": "vae", "steps": 0},
    ],
)
def test_no_training_of_a_bad_wish_is_begun(served, trained, wish):
    before = {run.id for run in Store(trained[0]).runs()}
    status, _, body = ask(served, "/api/trainings", "POST", json.dumps(wish).encode())
    assert status in (400, 422), body
    assert {run.id for run in Store(trained[0]).runs()} == before


def test_other_machines_need_a_token(capsys, tmp_path):
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ValueError, match="can be reached by other machines"):
            check_binding(host, "")
    check_binding("0.0.0.0", "a-long-enough-token")
    check_binding("::1", "")
    for token in ("short", "with space in between", "ünïcödé-token-longer"):
        with pytest.raises(ValueError, match="at least 16"):
            check_binding("127.0.0.1", token)
    assert main(["serve", "--host", "0.0.0.0", "--runs", str(tmp_path)]) == 2
    assert "--token auto" in capsys.readouterr().err


def test_a_token_is_needed_for_everything(serving, trained):
    token = "a-token-of-some-letters"
    served = serving(trained[0], token=token)
    try:
        for path in ("/", "/api/runs", "/page/app.js", "/?token=wrong", "/api/runs?token=" + token):
            assert ask(served, path)[0] == 401
        assert ask(served, "/api/runs", Authorization="Bearer wrong")[0] == 401
        assert ask(served, "/api/runs", Cookie="polariscope-token=wrong")[0] == 401
        status, headers, _ = ask(served, f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=Strict" in headers["set-cookie"]
        assert ask(served, "/api/runs", Cookie=headers["set-cookie"].split(";")[0])[0] == 200
        assert ask(served, "/api/runs", Authorization=f"Bearer {token}")[0] == 200
    finally:
        served.close()
