"""Generated from proto/parallax/v1 by proto/generate.py; do not edit."""
