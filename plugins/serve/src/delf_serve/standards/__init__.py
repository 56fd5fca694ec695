"""Standards of other systems that a server speaks: OpenAI's API, AG-UI and A2A."""
