"""``WebSearch``: a model that searches the web by itself, or a SearXNG server."""
