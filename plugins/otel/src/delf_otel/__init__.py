"""What delf's tasks do as OpenTelemetry traces and metrics."""
