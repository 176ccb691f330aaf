"""`python -m veredus` is `veredus`."""

from veredus.cli import main

main()
