"""Run the command line by `python -m dslint`."""

from dslint.cli import main

main()
