"""Sandboxes from the host's side: the wire, the session, the policy. Public for backends."""
