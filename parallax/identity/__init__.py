"""Who calls: from a certificate or a token to a principal, and whether it has the right."""
