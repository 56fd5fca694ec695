"""Actions of scripts, their signatures and permissions, and connections."""
