"""A strategy for delf: thoughts and tool calls in one stream."""
