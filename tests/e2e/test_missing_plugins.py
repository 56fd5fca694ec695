"""An option of a plugin that is not there says which plugin."""

import pytest

from support.program import delf


@pytest.mark.parametrize(
    "flags", [("--llm", "gpt-4o-mini", "--record", "f.jsonl"), ("--llm", "recorded:f.jsonl")]
)
def test_recording_without_its_plugin_is_reported(tmp_path, flags):
    env = {"DELF_DISABLE_PLUGINS": "model-recorded", "OPENAI_API_KEY": "sk-planted-0123456789"}
    done = delf("run", "x", *flags, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "no model 'recorded': plugin 'model-recorded'" in done.stderr
