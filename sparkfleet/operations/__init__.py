"""pyinfra operations."""
