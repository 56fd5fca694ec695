"""Gemini, OpenAI, Anthropic and every OpenAI-compatible endpoint, through litellm."""
