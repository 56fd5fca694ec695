"""Make the catalogue of plugin model-http from litellm's list of models.

    .venv/bin/python scripts/model_catalog.py

It reads the list that the installed litellm holds, and keeps what delf uses of the chat models of
the plugin's providers, each of which has litellm's name of the provider as name or alias: USD per
million tokens of input, of input from the cache, of input written to the cache and of output, the
same for long calls, the longest answer, and whether settings such as the temperature are refused.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from delf.providers import Providers
from delf_model_http.providers import PROVIDERS

TARGET = Path(__file__).parents[1] / "plugins/model-http/src/delf_model_http/models.json"
LIST = "model_prices_and_context_window_backup.json"
LONG = re.compile(r"input_cost_per_token_above_(\d+)k_tokens$")


def main() -> None:
    """Write the file."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("litellm is not installed here: make dev")
    known = json.loads((Path(spec.submodule_search_locations[0]) / LIST).read_text("utf-8"))
    providers = Providers(PROVIDERS)
    models: dict[str, dict[str, Any]] = {}
    for name, entry in sorted(known.items()):
        provider = providers.by_name(entry.get("litellm_provider", ""))
        if provider and entry.get("mode") == "chat" and (made := facts(entry)):
            model = name.partition("/")[2] if "/" in name else name
            models.setdefault(provider.name, {})[model] = made
    version = importlib.metadata.version("litellm")
    about = {"made": dt.datetime.now(dt.UTC).date().isoformat(), "from": f"litellm {version}"}
    TARGET.write_text(written({**about, "usd": "per million tokens"}, models), "utf-8")
    print({provider: len(entries) for provider, entries in models.items()})


def facts(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the facts that are kept of a model; None where it has no price."""
    usd = rates(entry, "")
    if usd is None:
        return None
    made: dict[str, Any] = {"usd": usd}
    for key in entry:
        if (found := LONG.fullmatch(key)) and (long := rates(entry, f"_above_{found[1]}k_tokens")):
            made["long"] = [int(found[1]) * 1000, *long]
    if longest := entry.get("max_output_tokens"):
        made["longest"] = longest
    if entry.get("litellm_provider") == "openai" and entry.get("supports_reasoning"):
        made["reasons"] = True
    if entry.get("supports_sampling_params") is False:
        made["fixed"] = True
    return made


def rates(entry: dict[str, Any], suffix: str) -> list[float] | None:
    """Input, cached, written, output; what has no price of its own has that of input."""
    given = entry.get(f"input_cost_per_token{suffix}")
    out = entry.get(f"output_cost_per_token{suffix}", entry.get("output_cost_per_token"))
    if given is None or out is None:
        return None
    cached = entry.get(f"cache_read_input_token_cost{suffix}", given)
    made = entry.get(f"cache_creation_input_token_cost{suffix}", given)
    return [round(price * 1e6, 6) for price in (given, cached, made, out)]


def written(about: dict[str, str], models: dict[str, dict[str, Any]]) -> str:
    """The file's text: a line a model, so that a newer one can be compared."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in about.items()]
    for number, (provider, entries) in enumerate(models.items(), 1):
        lines.append(f"  {json.dumps(provider)}: {{")
        rows = [f"   {json.dumps(name)}: {json.dumps(made)}" for name, made in entries.items()]
        lines += [",\n".join(rows), "  }" + ("," if number < len(models) else "")]
    head = len(about)
    return "\n".join(["{", *lines[:head], ' "models": {', *lines[head:], " }", "}"]) + "\n"


if __name__ == "__main__":
    main()
