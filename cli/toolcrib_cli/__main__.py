"""`python -m toolcrib_cli`."""

from toolcrib_cli.main import main

if __name__ == "__main__":
    main()
