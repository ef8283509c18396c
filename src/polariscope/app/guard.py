"""Checks of every request to the explorer, before any route runs.

A page on the internet that is open in the same browser can send requests to this machine. So the Host of a request must
name this server (a foreign name that points at it is refused), the request must not come from another origin, and its
body must be JSON. A server that other machines can reach also needs a token. Response headers tell the browser to load
nothing from other sites, to run no foreign script, and to embed the page nowhere.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 2**20
"""Bytes of a request: a thousand codes of a hundred numbers fit."""
SHORTEST_TOKEN = 16
COOKIE = "polariscope-token"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""For the explorer's page: only its own scripts and styles, nothing from other sites, and no embedding."""
DOCUMENT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""For a report from a run folder, which may be a stranger's: no scripts, and an origin of its own."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, token: str) -> None:
    """Refuse to let other machines in without a token, and a token that can be guessed."""
    if token and (len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable() and " " not in token)):
        raise ValueError(
            f"a token has at least {SHORTEST_TOKEN} letters, digits and signs, and no space; '--token auto' makes one"
        )
    if not token and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached by other machines, and anyone who reaches the explorer can start trainings here: "
            "give --token auto, or leave --host out to serve this machine alone"
        )


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: Application, host: str, port: int, token: str = "") -> None:
        check_binding(host, token)
        self.inner, self.token = inner, token
        names = [*LOOPBACK_NAMES, f"[{host}]" if ":" in host else host]
        # Behind a token any name of this machine will do: a page of another origin does not have the token's cookie.
        self.hosts = None if not is_loopback(host) else {f"{name}:{port}" for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the explorer answers http only; got {scope['type']}")
        headers = _headers(scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        if self.token and not self._has_token(headers):
            given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
            if scope["method"] == "GET" and scope["path"] == "/" and self._is_token(given):
                await _welcome(send, self.token)
            else:
                await _refuse(send, 401, "this explorer needs its token: open the address that 'serve' printed")
            return
        body = await _read(receive)
        if body is None:
            await _refuse(send, 413, f"a request has at most {LARGEST_BODY:,} bytes")
            return
        await self.inner(scope, _replayed(body, receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self.hosts is not None and host.lower() not in self.hosts:
            return 421, "the Host header does not name this machine"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "requests from other pages are refused"
        site = headers.get("sec-fetch-site", "same-origin")
        navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        opens = scope["method"] == "GET" and scope["path"] == "/" and navigates
        if site not in ("same-origin", "none") and not opens:
            return 403, "requests from other pages are refused"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "the explorer answers GET and POST"
        if scope["method"] == "POST" and headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return 415, "the body of a request must be JSON"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"a request has at most {LARGEST_BODY:,} bytes"
        return None

    def _has_token(self, headers: dict[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(given)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by name; of one that comes twice, both, so that neither is overlooked."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        headers[name] = f"{headers[name]},{value.decode('latin-1')}" if name in headers else value.decode("latin-1")
    return headers


async def _read(receive: Receive) -> bytes | None:
    """The whole body, or None if it is too long, whatever it said it was."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_BODY:
            return None
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.decode("latin-1").lower() for name, _ in message["headers"]}
            more = {**HEADERS, "content-security-policy": POLICY, "x-frame-options": "DENY"}
            added = [(n.encode(), v.encode()) for n, v in more.items() if n not in own]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return tell


async def _refuse(send: Send, status: int, sentence: str) -> None:
    text = sentence.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    tell = _with_headers(send)
    await tell({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await tell({"type": "http.response.body", "body": text})


async def _welcome(send: Send, token: str) -> None:
    """Put the token into a cookie that no script and no other site sees, and out of the address."""
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    tell = _with_headers(send)
    await tell({"type": "http.response.start", "status": 303, "headers": headers})
    await tell({"type": "http.response.body", "body": b""})
