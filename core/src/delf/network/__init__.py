"""Parts for services over a network: addresses, bodies, pauses, trust of TLS, outages."""
