"""What spark-submit runs: `spark-submit "$(tidelog spark --script)" verify DIR`.

A program, and never imported: so it may know the command line, which stands above this room.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are not to be taken for others of the same names
    sys.argv[:1] = ["tidelog", "spark"]
    from importlib import import_module

    import_module("tidelog.cli.main").main()
