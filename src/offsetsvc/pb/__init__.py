"""Generated from proto/parallax/v1 by tools/gen_protos.py; do not edit."""
