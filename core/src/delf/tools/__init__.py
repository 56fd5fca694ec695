"""What a script can call: actions, their signatures and permissions, and connections."""
