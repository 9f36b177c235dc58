"""The proof: after faults, every record is where it belongs and every offset gets a right answer."""
