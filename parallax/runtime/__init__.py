"""What every process needs: deadlines, retries, logs, signals, and a collector that does not stop it."""
