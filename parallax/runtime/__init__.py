"""What every process needs: configuration, logs, metrics, retry, deadlines, life cycle."""
