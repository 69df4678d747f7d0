"""`python -m secemb_tools`, which is the same as `secemb`."""

from secemb_tools.command import main

if __name__ == "__main__":
    main()
