"""A Slack of one's own on loopback: the methods that the channel calls, Socket Mode, people."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from support.until import until

Person = Callable[["Slack", dict[str, Any]], Awaitable[None]]
OURS = "T0OURS"
"""The workspace in which the app is installed."""
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


class Slack:
    """A fake Slack that stores posted messages and sends people's interactions to the app.

    Args:
        person: Called with each message that has buttons.
        fails: The methods that answer with an error.
    """

    def __init__(self, person: Person | None = None, fails: tuple[str, ...] = ()) -> None:
        self.person = person
        self.fails = fails
        self.messages: dict[str, dict[str, Any]] = {}
        self.updates: list[dict[str, Any]] = []
        self.not_updatable: dict[str, str] = {}
        """Slack's errors for updates, by message."""
        self.asked: list[dict[str, Any]] = []
        """The messages with buttons as they were posted."""
        self.ephemeral: list[dict[str, Any]] = []
        self.views: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self.groups = {"S0FINANCE": ["U0ADA"]}
        self.asked_groups = 0
        self.limited = 0
        self.answers: dict[str, Any] = {}
        self.http_port: int | None = None
        self.to = -1
        """The number of the connection that receives people's actions."""
        self.sent = asyncio.Event()
        self.closed = asyncio.Event()
        self.sockets: list[web.WebSocketResponse] = []
        self._number = 0
        self._working: set[asyncio.Task[None]] = set()
        app = web.Application(client_max_size=10_000_000)
        app.router.add_route("*", "/api/{method}", self._called)
        app.router.add_post("/upload/{file}", self._uploaded)
        app.router.add_get("/socket", self._connected)
        self._runner = web.AppRunner(app)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._working:
            task.cancel()
        for socket in self.sockets:
            await socket.close()
        await self._runner.cleanup()

    # -- the Web API ----------------------------------------------------------------------------

    async def _called(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        if request.headers.get("Authorization") not in ("Bearer xoxb-1", "Bearer xapp-1"):
            return web.json_response({"ok": False, "error": "invalid_auth"})
        if method in self.fails:
            return web.json_response({"ok": False, "error": "channel_not_found"})
        if self.limited and method == "chat.postMessage":
            self.limited -= 1
            return web.Response(status=429, headers={"Retry-After": "0"})
        given: dict[str, Any]
        if request.content_type == "application/json":
            given = await request.json()
        else:
            given = {**request.query, **await request.post()}
            for name in ("blocks", "view", "files"):
                if isinstance(given.get(name), str):
                    given[name] = json.loads(given[name])
        view: dict[str, Any] = given.get("view") or {}
        self._check(given.get("blocks") or view.get("blocks") or [])
        return web.json_response({"ok": True, **self._done(method, given)})

    def _done(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        match method:
            case "chat.postMessage":
                ts = f"1700000000.{self._number:06}"
                self.messages[ts] = given
                self.asked += [given] if _buttons(given) else []
                if self.person is not None and _buttons(given):
                    self.soon(self.person(self, {**given, "ts": ts}))
                return {"ts": ts, "channel": given["channel"]}
            case "chat.update":
                if given["ts"] not in self.messages:
                    return {"ok": False, "error": "message_not_found"}
                if given["ts"] in self.not_updatable:
                    return {"ok": False, "error": self.not_updatable[given["ts"]]}
                self.updates.append(given)
                self.messages[given["ts"]] = {**self.messages[given["ts"]], **given}
                self.closed.set()
                return {"ts": given["ts"]}
            case "chat.postEphemeral":
                self.ephemeral.append(given)
                self.sent.set()
                return {"message_ts": "1"}
            case "views.open":
                self.views.append(given["view"])
                return {"view": given["view"]}
            case "usergroups.users.list":
                self.asked_groups += 1
                return {"users": self.groups[given["usergroup"]]}
            case "files.getUploadURLExternal":
                name = f"F{self._number}"
                self.files[name] = {"name": given["filename"]}
                return {"upload_url": f"{self.url}/upload/{name}", "file_id": name}
            case "files.completeUploadExternal":
                for file in given["files"]:
                    self.files[file["id"]] |= {
                        "channel": given["channel_id"],
                        "thread": given["thread_ts"],
                    }
                self.sent.set()
                return {"files": given["files"]}
            case "auth.test":
                return {"team_id": OURS, "team": "ours", "user_id": "U0DELF"}
            case "apps.connections.open":
                return {"url": f"{self.url.replace('http', 'ws')}/socket"}
            case _:
                raise AssertionError(f"Slack has no {method} here")

    def _check(self, blocks: list[dict[str, Any]]) -> None:
        """Refuse messages that Slack would refuse: too many blocks, and empty or too long texts."""
        assert len(blocks) <= 50
        limits = {"header": 150, "section": 3000}
        for block in blocks:
            if block["type"] in limits:
                text = block["text"]
                assert text["type"] == "plain_text"
                assert 1 <= len(text["text"]) <= limits[block["type"]]
            for element in block.get("elements", ()):
                if element["type"] == "button":
                    assert len(element["text"]["text"]) <= 75

    async def _uploaded(self, request: web.Request) -> web.Response:
        content = await request.read()
        if request.content_type.startswith("multipart"):
            content = content.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]
        self.files[request.match_info["file"]]["content"] = content.decode()
        return web.Response(text="OK")

    # -- what people do -------------------------------------------------------------------------

    async def _connected(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        await socket.send_json({"type": "hello", "num_connections": 1})
        async for message in socket:
            if message.type != aiohttp.WSMsgType.TEXT:
                break
            words = json.loads(message.data)
            waiting = self.answers.get(words.get("envelope_id"))
            if waiting is not None:
                waiting.set_result(words.get("payload"))
        return socket

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Return the messages that have buttons, by name."""
        return [{**m, "ts": ts} for ts, m in self.messages.items() if _buttons(m)]

    async def question(self, text: str) -> dict[str, Any]:
        """Wait for a message with buttons that shows a text, and return it."""
        found = await until(lambda: [each for each in self.questions if text in texts(each)])
        return found[0]

    async def shown(self, ts: str, text: str) -> dict[str, Any]:
        """Wait until a message shows a text, and return the message."""
        await until(lambda: text in texts(self.messages[ts]))
        return self.messages[ts]

    def soon(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def tell(self, payload: dict[str, Any]) -> Any:
        """Send an interaction to the app; return the reply to a form."""
        if self.http_port is not None:
            status, words = await self.post(payload)
            assert status == 200
            return words
        self._number += 1
        name = f"envelope-{self._number}"
        self.answers[name] = asyncio.get_running_loop().create_future()
        envelope = {"type": "interactive", "envelope_id": name, "payload": payload}
        await self.sockets[self.to].send_json({**envelope, "accepts_response_payload": True})
        return await self.answers[name]

    async def post(
        self,
        payload: Any,
        *,
        secret: str = SECRET,
        at: float | None = None,
        signed: str | None = None,
    ) -> tuple[int, Any]:
        """Post an interaction signed like Slack's; return the status and the reply to a form."""
        body = urlencode({"payload": json.dumps(payload)})
        when = str(int(time.time() if at is None else at))
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Slack-Request-Timestamp": when,
            "X-Slack-Signature": signed or signature(body, when, secret),
        }
        url = f"http://127.0.0.1:{self.http_port}/slack/interactions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def press(
        self,
        message: dict[str, Any],
        button: str,
        user: str = "U0ADA",
        team: str | None = OURS,
    ) -> None:
        """Press a button of a message, as a person of a workspace."""
        value = next(iter(_buttons(message).values()))["value"]
        action = {"action_id": button, "value": value, "type": "button"}
        await self.tell(
            {
                "type": "block_actions",
                "user": {"id": user, "username": user[2:].lower(), "team_id": team},
                "trigger_id": "t1",
                "channel": {"id": message["channel"]},
                "actions": [action],
            }
        )

    async def send(
        self, fields: dict[str, str | None], user: str = "U0ADA", team: str | None = OURS
    ) -> Any:
        """Submit the form that was opened last; omitted fields keep their values."""
        view = self.views[-1]
        values: dict[str, Any] = {}
        for block in view["blocks"]:
            if block["type"] == "input":
                name = block["block_id"]
                element = block["element"]
                if element["type"] == "static_select":
                    chosen = fields.get(name) or element["initial_option"]["value"]
                    assert chosen in [option["value"] for option in element["options"]]
                    reported = {"type": "static_select", "selected_option": {"value": chosen}}
                else:
                    given = fields.get(name, element.get("initial_value"))
                    reported = {"type": "plain_text_input", "value": given}
                values[name] = {"value": reported}
        return await self.tell(
            {
                "type": "view_submission",
                "user": {"id": user, "username": user[2:].lower(), "team_id": team},
                "view": {**view, "state": {"values": values}},
            }
        )


def signature(body: str, at: str, secret: str = SECRET) -> str:
    """Return Slack's signature of a body at a Unix time."""
    signed = hmac.digest(secret.encode(), f"v0:{at}:{body}".encode(), hashlib.sha256)
    return f"v0={signed.hex()}"


def _buttons(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    blocks: list[dict[str, Any]] = message.get("blocks") or []
    rows = [block["elements"] for block in blocks if block["type"] == "actions"]
    return {button["action_id"]: button for row in rows for button in row}


def buttons_of(message: dict[str, Any]) -> dict[str, str]:
    """Return the buttons of a message, each with its request."""
    return {name: button["value"] for name, button in _buttons(message).items()}


def texts(message: dict[str, Any]) -> str:
    """Return everything that a message shows."""
    found: list[str] = []
    for block in message["blocks"]:
        found += [block["text"]["text"]] if "text" in block else []
        found += [
            e["text"]["text"] if e["type"] == "button" else e["text"]
            for e in block.get("elements", ())
        ]
    return "\n".join(found)
