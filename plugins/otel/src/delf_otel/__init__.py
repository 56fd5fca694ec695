"""Tasks of delf as OpenTelemetry traces and metrics."""
