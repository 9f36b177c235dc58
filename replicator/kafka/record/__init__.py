"""The record path: a plain consumer and a transactional producer."""
