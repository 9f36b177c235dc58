"""The data of the bench: made, sent and read back."""
