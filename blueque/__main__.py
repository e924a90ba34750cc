"""`python -m blueque` is `blueque`."""

from blueque.cli.main import main

if __name__ == "__main__":
    main()
