"""``flowsim`` and ``python -m flowsim``: the command line."""

import sys

from flowsim.cli.interruption import ended_by_signals


def main() -> None:
    """Load the command line, which takes a while, and run it."""
    with ended_by_signals():
        from flowsim.cli.main import main as run

        run()


if __name__ == "__main__":
    sys.argv[0] = "flowsim"  # which a record's command begins with
    main()
