"""Generated from proto/parallax/runlog/v1 by tools/gen_protos.py; do not edit."""
