"""Runners: tasks that wait in the journal, as durable workflows of DBOS."""
