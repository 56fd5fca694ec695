"""Runners: tasks as durable workflows of DBOS's queues."""
