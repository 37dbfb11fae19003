"""``python -m dmfvi`` is the command line."""

from dmfvi.cli import main

if __name__ == "__main__":
    main()
