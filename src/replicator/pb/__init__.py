"""Generated from proto/parallax/runlog/v1/runlog.proto by tools/gen_protos.py; do not edit."""
