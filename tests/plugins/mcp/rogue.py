"""A server that misbehaves, in the way that its first argument names; no library, no manners.

The second one is a file of JSON: ``tools``, those after a change (``later``), what it ``asks`` during
a call, and the call's ``answer``.
"""

import json
import os
import sys
from pathlib import Path

MODE = sys.argv[1]
GIVEN = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else {}
ASKS, TOOLS, LATER = GIVEN.get("asks", []), GIVEN.get("tools"), GIVEN.get("later")
ANSWER = GIVEN.get("answer", {"content": [{"type": "text", "text": "done"}]})
SCHEMA = {"type": "object", "properties": {}}
GOOD = {"name": "good", "description": "Does good.", "inputSchema": SCHEMA}
out, state = sys.stdout.buffer, {"asked": 0, "answers": [], "waiting": None, "tools": TOOLS}


def write(data):
    out.write(data)
    out.flush()


def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def tool(name, **more):
    return {**GOOD, "name": name, **more}


def page(method, cursor):
    number = int(cursor or 0)
    if MODE == "circles" and method != "tools/list":
        kinds = {"resources": [], "resourceTemplates": []}
        return {**kinds, "nextCursor": "1"}
    match MODE:
        case "many":
            return {"tools": [tool(f"t{n}") for n in range(50_000)]}
        case "endless":
            tools = [tool(f"t{number}_{n}") for n in range(50)]
            return {"tools": tools, "nextCursor": str(number + 1)}
        case "empty pages":
            return {"tools": [], "nextCursor": str(number + 1)}
        case "circle":
            return {"tools": [tool(f"t{number}")], "nextCursor": str((number + 1) % 3)}
        case "large":
            tools = [tool(f"t{number}_{n}", description="x" * 500_000) for n in range(10)]
            return {"tools": tools, "nextCursor": str(number + 1)}
        case "no list":
            return {"tools": "none"}
        case "storm":
            for _ in range(2000):
                send(method="notifications/tools/list_changed")
    found = state["tools"]
    return {"tools": [GOOD] if found is None else found}


def deep_list(number, method):
    """Answer with two items, of which the second has a deep part, which ``json`` could not write."""
    key = {"tools/list": "tools", "resources/list": "resources"}.get(method, "resourceTemplates")
    levels = GIVEN["levels"]
    resource = {"uri": "a:good", "uriTemplate": "a:{good}", "name": "good"}
    good = GOOD if key == "tools" else resource
    deep = b'{"properties":' * levels + b"{}" + b"}" * levels
    part = b'"inputSchema": {"type": "object", "properties": {"a": %b}}' % deep
    if key != "tools":
        part = b'"uri": "a:deep", "uriTemplate": "a:{deep}", "_meta": %b' % deep
    items = b'[%b, {"name": "deep", %b}]' % (json.dumps(good).encode(), part)
    text = b'{"jsonrpc": "2.0", "id": %d, "result": {"%b": %b}}\n'
    return write(text % (number, key.encode(), items))


def answer(message):
    method, number = message["method"], message["id"]
    params = message.get("params") or {}
    if method == "initialize" and MODE == "refuses to start":
        return send(id=number, error={"code": -32000, "message": GIVEN["message"]})
    if method == "initialize" and MODE == "odd version":
        shown = {"protocolVersion": GIVEN["message"], "capabilities": {}}
        return send(id=number, result={**shown, "serverInfo": {"name": "r", "version": "1"}})
    if method == "initialize":
        names = ("resources",) if MODE in ("circles", "deep list") else ()
        able = {"tools": {"listChanged": True}, **{name: {} for name in names}}
        shown = {"protocolVersion": "2025-11-25", "capabilities": able}
        return send(id=number, result={**shown, "serverInfo": {"name": "r", "version": "1"}})
    if method.endswith("/list"):
        if MODE == "silent":
            return None
        if MODE == "dead":
            os._exit(3)
        if MODE == "deep list":
            return deep_list(number, method)
        if MODE == "huge list":
            write(b'{"jsonrpc": "2.0", "id": 1, "result": {"tools": "')
            while True:
                write(b"x" * 1_000_000)
        return send(id=number, result=page(method, params.get("cursor")))
    if method != "tools/call":
        return send(id=number, error={"code": -32601, "message": "no"})
    return called(number)


def called(number):
    match MODE:
        case "rubbish":
            write(b"Listening on http://...\n{}\n[1, 2\n\n\xff\xfe\x00\n")
        case "latin":
            text = b'{"content": [{"type": "text", "text": "caf\xe9"}]}'
            return write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, text))
        case "half signs":
            text = b'{"content": [{"type": "text", "text": "a\\ud800b"}]}'
            return write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, text))
        case "digits":
            text = b'{"content": [], "structuredContent": {"n": %b}}' % (b"9" * 100_000)
            return write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, text))
        case "doubled":
            text = GIVEN["bytes"].encode()
            return write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, text))
        case "deep":
            deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
            return write(b'{"jsonrpc": "2.0", "id": %d, "result": %s}\n' % (number, deep))
        case "flood":
            while True:
                write(b"y\n" * 1000)
        case "huge":
            for _ in range(100):
                write(b"x" * 1_000_000)
            write(b"\n")
        case "long error":
            shown = "\u202eno\u202c" + "x" * 1_000_000
            return send(id=number, error={"code": -32000 + 7, "message": shown})
        case "quota":
            return send(id=number, error={"code": -32000, "message": "quota exceeded"})
        case "long failure":
            block = {"type": "text", "text": "y" * 1_000_000}
            return send(id=number, result={"content": [block], "isError": True})
        case "chatty":
            token = state.get("token")
            for n in range(3000):
                about = {"level": "error", "data": "TELL EVERYBODY " * 20}
                send(method="notifications/message", params=about)
                send(
                    method="notifications/progress", params={"progressToken": token, "progress": n}
                )
                send(method="notifications/progress", params={"progress": "none"})
        case "changes":
            state["tools"] = LATER
            send(method="notifications/tools/list_changed")
        case "meeting":  # no call is answered before there are two
            if state["waiting"] is None:
                state["waiting"] = number
                return None
            state["met"] = number
            return ask()
    state["waiting"] = number
    return ask()


def ask():
    if state["asked"] < len(ASKS):
        question = ASKS[state["asked"]]
        state["asked"] += 1
        return send(id=f"q{state['asked']}", **question)
    result = ANSWER
    if state["answers"]:
        text = json.dumps(state["answers"])
        result = {"content": [{"type": "text", "text": text}]}
    if "met" in state:
        send(id=state["met"], result=result)
    return send(id=state["waiting"], result=result)


if MODE == "errors":
    sys.stderr.write("z" * 50_000_000)
for line in sys.stdin:
    came = json.loads(line)
    if "method" in came and "id" in came:
        meta = (came.get("params") or {}).get("_meta") or {}
        state["token"] = meta.get("progressToken")
        answer(came)
    elif "id" in came and "method" not in came:
        state["answers"].append(came.get("result") or came.get("error"))
        ask()
