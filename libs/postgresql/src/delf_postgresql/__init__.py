"""The logins that PostgreSQL's client library takes from the user, for plugins that connect."""
