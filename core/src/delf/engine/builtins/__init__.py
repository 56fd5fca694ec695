"""Connections that every script finds, whatever tools the agent has; one file each."""
