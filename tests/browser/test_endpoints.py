"""What the server's part of the extension refuses: strangers, other sites, other paths."""

from __future__ import annotations

import http.cookiejar
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from ddt_notebook.symptoms import lessons

from .server import Lab

_LIMIT_S = 60
_RUN = "one-rank-skips-all-reduce.ddt.json"
_COPY = json.dumps({"path": "00-quickstart.ipynb", "folder": ""}).encode()
#: Each endpoint of ours, by method.
ENDPOINTS = (
    ("GET", f"snapshot?path={_RUN}", None),
    ("GET", "lessons", None),
    ("POST", "lessons", _COPY),
)


def asked(
    lab: Lab,
    method: str,
    path: str,
    data: bytes | None = None,
    *,
    headers: Mapping[str, str] = {},
    cookies: http.cookiejar.CookieJar | None = None,
) -> tuple[int, str]:
    """The status and the text of an answer."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    url = f"{lab.url}ddt-notebook/{path}"
    request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)
    try:
        with opener.open(request, timeout=_LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def run(lab: Lab, root: Path) -> Path:
    """A saved run in the folder of the server."""
    shutil.rmtree(lab.folder / "ddt-notebook", ignore_errors=True)  # of an earlier test
    return Path(shutil.copy(root / "tests" / "fixtures" / _RUN, lab.folder))


def known(lab: Lab) -> dict[str, str]:
    """What a request of the user's own programs carries."""
    return {"Authorization": f"token {lab.token}"}


def logged_in(lab: Lab) -> http.cookiejar.CookieJar:
    """The cookies of a browser in which the user is logged in."""
    cookies = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    opener.open(f"{lab.url}lab?token={lab.token}", timeout=_LIMIT_S).close()
    return cookies


def test_no_one_is_answered_without_the_token(lab: Lab, run: Path) -> None:
    for method, path, data in ENDPOINTS:
        for headers in ({}, {"Authorization": "token 0000"}, {"Cookie": "username=x"}):
            status, text = asked(lab, method, path, data, headers=headers)
            assert status == 403, (method, path)
            assert "all_reduce" not in text
            assert "quickstart" not in text
    assert not (lab.folder / "ddt-notebook").exists()
    status, text = asked(lab, "GET", f"snapshot?path={_RUN}", headers=known(lab))
    assert status == 200, "the same request with the token is answered"
    assert "rank 1 never entered all_reduce" in text


def test_a_page_of_another_site_is_not_answered(lab: Lab, run: Path) -> None:
    cookies = logged_in(lab)
    for origin in ("http://evil.invalid", "null"):
        headers = {"Origin": origin, "Referer": f"{origin}/x", "Sec-Fetch-Site": "cross-site"}
        for method, path, data in ENDPOINTS:
            status, text = asked(lab, method, path, data, headers=headers, cookies=cookies)
            assert status in (403, 404), (method, path, origin)
            assert "all_reduce" not in text
    status, _ = asked(lab, "POST", "lessons", _COPY, cookies=cookies)
    assert status == 403, "a form that another page sends has no XSRF token"
    assert not (lab.folder / "ddt-notebook").exists()
    status, _ = asked(lab, "GET", "lessons", cookies=cookies)
    assert status == 200, "the user's own page is answered"


def test_an_opened_lesson_has_what_it_needs_but_not_the_answer(lab: Lab) -> None:
    name = "d-training/D.2.1-hang.ipynb"
    (lab.folder / "opened").mkdir(exist_ok=True)
    data = json.dumps({"path": name, "folder": "opened"}).encode()
    assert asked(lab, "POST", "lessons", data, headers=known(lab))[0] == 200
    book = json.loads((lab.folder / "opened" / "ddt-notebook" / name).read_text("utf-8"))
    sources = ["".join(cell["source"]) for cell in book["cells"]]
    at = sources.index("%ddt_predict D.2.1")
    assert not any(cell.get("outputs") for cell in book["cells"][at:])
    for other in lessons.notebooks():
        opened = lab.folder / "opened" / "ddt-notebook" / other
        prose = "".join("".join(c["source"]) for c in json.loads(opened.read_text())["cells"])
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
            assert (opened.parent / link).exists(), f"{opened.name} needs {link}"
    assert (lab.folder / "opened/ddt-notebook/e-today/restart/report-1.ddt.json").exists()
    shutil.rmtree(lab.folder / "opened")


def test_paths_out_of_the_folder_are_refused(lab: Lab, run: Path) -> None:
    outside = lab.folder.parent / "secret.ddt.json"
    shutil.copy(run, outside)
    (lab.folder / "link.ddt.json").unlink(missing_ok=True)
    (lab.folder / "link.ddt.json").symlink_to("/proc/self/environ")
    (lab.folder / ".hidden.ddt.json").write_text(run.read_text())
    for path in (
        *("../secret.ddt.json", "%2e%2e/secret.ddt.json", "..%2fsecret.ddt.json"),
        *("a/../../secret.ddt.json", "..%5csecret.ddt.json", "%00", "a%00b"),
        *(str(outside), "//etc/passwd", "~/.bashrc", "link.ddt.json", ".hidden.ddt.json"),
        *("", ".", "none.ddt.json", "%F0%9F%92%A9", "a" * 5000),
    ):
        status, text = asked(lab, "GET", f"snapshot?path={path}", headers=known(lab))
        assert status in (400, 404, 500), path
        assert "all_reduce" not in text, path
        assert "PATH=" not in text, path
    assert asked(lab, "GET", "snapshot", headers=known(lab))[0] == 400
    before = sorted(lab.folder.parent.rglob("*.ipynb"))
    for name, folder in (
        *(("../../etc/passwd", ""), ("/etc/passwd", ""), ("", ""), ("00-quickstart.ipynb/..", "")),
        *(("00-quickstart.ipynb", up) for up in ("..", "../..", "a/../..", "/../", "\x00")),
    ):
        data = json.dumps({"path": name, "folder": folder}).encode()
        status, _ = asked(lab, "POST", "lessons", data, headers=known(lab))
        assert status >= 400, (name, folder)
    assert sorted(lab.folder.parent.rglob("*.ipynb")) == before
    for data in (b"", b"[]", b"nonsense", b'{"path": 1}', b'"x"'):
        assert asked(lab, "POST", "lessons", data, headers=known(lab))[0] >= 400, data
