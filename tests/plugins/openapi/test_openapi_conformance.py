"""Requests for whole specifications, judged by openapi-core.

What is sent is made from the schemas at random; the seed is fixed, so a failure comes again.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from support.openapi_specs import PETS, body, one, param

from .openapi_conformance import judge_spec

SAMPLED = {
    "adyen_checkout_v71.json": 10,
    "box.json": 15,
    "cloudflare_2024-08-06.json": 15,
    "discord.json": 15,
    "kubernetes_core_v1.json": 15,
    "openai.yaml": 10,
    "petstore3.yaml": 19,
    "slack_web_swagger2.json": 15,
    "stripe_spec3_2022-04-12.json": 25,
    "twilio_api_v2010.json": 15,
}


async def test_requests_for_a_small_specification_are_valid_for_openapi_core(
    tmp_path: pathlib.Path,
) -> None:
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(PETS))
    verdict = await judge_spec(str(file), rounds=5)
    assert (verdict.failures, verdict.operations) == ([], 5)


async def test_requests_for_a_multi_file_specification_are_valid_for_openapi_core(
    tmp_path: pathlib.Path,
) -> None:
    schema = {"type": "object", "properties": {"mum": {"$ref": "#"}, "age": {"type": "integer"}}}
    (tmp_path / "pet.json").write_text(json.dumps(schema))
    operation = {"requestBody": body({"$ref": "pet.json"}), "parameters": [{"$ref": "q.json#/q"}]}
    (tmp_path / "q.json").write_text(json.dumps({"q": param("q", required=True)}))
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(one(operation, method="post")))
    verdict = await judge_spec(str(file), rounds=3)
    assert (verdict.failures, verdict.valid) == ([], 4)


@pytest.mark.parametrize("name", SAMPLED)
async def test_requests_for_real_specifications_are_valid_for_openapi_core(
    name: str, specs: pathlib.Path
) -> None:
    verdict = await judge_spec(str(specs / name), most=SAMPLED[name], seed=7)
    assert verdict.failures == []
    assert verdict.valid > SAMPLED[name]


async def test_openapi_core_check_detects_a_planted_bug(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from delf_openapi import requests

    file = tmp_path / "pets.json"
    file.write_text(json.dumps(PETS))
    monkeypatch.setattr(requests, "query_pairs", lambda param, value: [(param.name, "wrong")])
    monkeypatch.setattr(requests, "write_body", lambda *_: (b"[]", "application/json"))
    verdict = await judge_spec(str(file), rounds=5)
    assert {name for name, _ in verdict.failures} == {"list_pets", "create_pet"}
