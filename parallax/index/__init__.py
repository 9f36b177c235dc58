"""The mapping index as everybody reads it: rows searched in the blocks of a store."""
