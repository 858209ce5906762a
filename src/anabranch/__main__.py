"""`python -m anabranch`."""

from anabranch.cli.main import app_main

app_main()
