"""What plugins for language models share: names, addresses, keys, failures, retries."""
