"""The engine: an agent, its loop, the gate of calls, approvals, and replay of a journal."""
