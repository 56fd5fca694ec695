"""The path of a call on the host: gate, execution, record, result."""
