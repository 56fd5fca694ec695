"""Decisions about calls: the policy, the ways to ask, and the records."""
