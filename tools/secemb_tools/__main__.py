"""The entry point of `secemb` and `python -m secemb_tools`: the command line, or a hint at a missing extra."""

import sys

_EXTRAS = {"torch": "train", "dp_accounting": "dp", "asyncpg": "postgres"}
_USUAL = "tools,server"  # the dependencies of everything else


def main() -> None:
    """Run the command line."""
    try:
        from secemb_tools.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("secemb") or not missing:
            raise
        extra = _EXTRAS.get(missing, _USUAL)
        sys.exit(f"this needs {missing}, which is not installed: pip install 'secemb[{extra}]'")


if __name__ == "__main__":
    main()
