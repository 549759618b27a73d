"""`python -m seatrial` is the command `seatrial`."""

from seatrial.cli.main import main

if __name__ == "__main__":
    main()
