"""``flowsim`` and ``python -m flowsim``: the command line."""

import gc
import sys

from flowsim.cli.interruption import ended_by_signals


def main() -> None:
    """Load the command line, which takes a while, and run it."""
    # by default Python searches what the libraries made for garbage, again and again while they are
    # loaded: a tenth of the time of a first picture
    gc.set_threshold(50_000)
    with ended_by_signals():
        from flowsim.cli.main import main as run

        run()


if __name__ == "__main__":
    sys.argv[0] = "flowsim"  # which a record's command begins with
    main()
