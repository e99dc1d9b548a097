"""`python -m escounts`: the command, where the script is not on the path."""

from escounts.cli import main

main()
