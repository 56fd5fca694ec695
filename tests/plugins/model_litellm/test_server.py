"""The scripted server itself, as other processes use it."""

import json
import subprocess
import sys
from pathlib import Path

import httpx

TESTS = Path(__file__).parents[2]


def test_the_server_in_a_process_of_its_own(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"status": 503, "headers": {"Retry-After": "1"}}, "hello"]))
    command = [sys.executable, "-m", "support.openai_server", str(script)]
    process = subprocess.Popen(
        command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        url = process.stdout.readline().strip() + "/chat/completions"
        first, second, third = (
            httpx.post(url, json={"model": "m", "messages": []}) for _ in range(3)
        )
        process.stdin.close()
        assert process.wait(10) == 0
    assert (first.status_code, first.headers["retry-after"]) == (503, "1")
    assert second.json()["choices"][0]["message"]["content"] == "hello"
    assert third.status_code == 400
    assert "script" in third.json()["error"]["message"]
