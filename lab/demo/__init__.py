"""The demonstration: a region dies under load, and its consumers go on in the other one and come back."""
