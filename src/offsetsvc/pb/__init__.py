"""Generated from proto/parallax/v1/offsets.proto by tools/gen_protos.py; do not edit."""
