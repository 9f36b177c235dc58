"""The web console of a region: what the offset service knows, for people. It keeps nothing and changes nothing."""
