"""OpenAI, Anthropic, Gemini and every OpenAI-compatible server, over HTTP alone."""
