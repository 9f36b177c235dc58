"""Side-by-side runs of Parallax and MirrorMaker 2 on brokers of their own (docs/performance.md)."""
