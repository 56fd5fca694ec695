"""What each kind of plugin must be able to do: one small async protocol a file."""
