"""The demonstration: an aggregate cluster dies under load and its consumers go on in the other region."""
