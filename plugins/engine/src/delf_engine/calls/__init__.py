"""The host's side of a call: gate, execution, recording and result."""
