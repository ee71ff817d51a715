"""Run the command line with `python -m dslint`."""

from dslint.cli import main

main()
