"""A chained record of requests, approvals and actions."""
