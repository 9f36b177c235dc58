"""``python -m parallax``: every command of the product."""

from parallax.cli.main import run

run()
