"""Run the command line with `python -m dslint`.

Python puts the working directory in front of what it imports from, which is a stranger's checkout perhaps. It is removed before the next
import, unless dslint itself is in it.
"""

import os
import sys

OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to import
if not sys.flags.safe_path and sys.path[:1] != [OWN]:
    del sys.path[0]

from dslint.cli import main  # noqa: E402 - after the line above

main()
