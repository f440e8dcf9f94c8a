"""``python -m gdscore.cli``: the command where its script is not on the path."""

from gdscore.cli import main

if __name__ == "__main__":
    main()
