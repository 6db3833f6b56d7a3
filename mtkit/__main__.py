"""python -m mtkit, and the console script."""

from mtkit.cli import app


def main() -> None:
    app(prog_name="mtkit")


if __name__ == "__main__":
    main()
