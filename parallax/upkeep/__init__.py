"""What else target clusters share with their sources, kept in step: settings of topics, rules of access."""
