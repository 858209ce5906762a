"""`python -m bench NAME`."""

from anabranch.cli.main import run_command
from bench.commands.measurements import app

if __name__ == "__main__":
    run_command(app)
