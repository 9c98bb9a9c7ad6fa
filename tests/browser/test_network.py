"""Every request of a page beyond this machine fails and is noticed."""

from __future__ import annotations

from .lab import Page

#: A name that no server can have.
BEYOND = "beyond.invalid"
FETCH = """async url => {
  try { await fetch(url, { mode: 'no-cors' }); return 'answered'; } catch { return 'refused'; }
}"""
SOCKET = """url => new Promise(resolve => {
  const socket = new WebSocket(url);
  socket.onmessage = () => resolve('answered');
  socket.onclose = () => resolve('refused');
})"""


def test_only_this_machine_is_reached(page: Page) -> None:
    page.open()
    assert page.tab.evaluate(FETCH, f"https://{BEYOND}/fetched") == "refused"
    assert page.tab.evaluate(SOCKET, f"wss://{BEYOND}/listened") == "refused"
    assert page.strays == [f"https://{BEYOND}/fetched", f"wss://{BEYOND}/listened"]
    page.strays.clear()  # this page was meant to try

    url = f"{page.lab.url}api/status?token={page.lab.token}"
    assert page.tab.evaluate(FETCH, url) == "answered"
    events = f"{page.lab.url.replace('http', 'ws', 1)}api/events/subscribe?token={page.lab.token}"
    opens = (
        "url => new Promise(done => { const it = new WebSocket(url); it.onopen = () => done(true);"
    )
    assert page.tab.evaluate(f"{opens} it.onerror = () => done(false); }})", events)
