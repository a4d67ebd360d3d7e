"""``python -m flowsim``: the command line."""

import sys

from flowsim.cli.main import main

if __name__ == "__main__":
    sys.argv[0] = "flowsim"  # which a record's command begins with
    main()
