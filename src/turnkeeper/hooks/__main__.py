"""`python -m turnkeeper.hooks CLIENT SETTINGS_FILE`, as the installed hooks run it."""

import sys

from turnkeeper.hooks.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
