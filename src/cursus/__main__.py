"""`python -m cursus` is `cursus`."""

from cursus.cli import main

main()
