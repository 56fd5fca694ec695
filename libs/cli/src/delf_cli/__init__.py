"""Parts shared by delf's commands: sessions, output, and answers to requests."""
