"""`anabranch sql`: statements typed at a running system, or given to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from anabranch.cli.run import read_script
from anabranch.cli.show import err, out, show_answer, show_error
from anabranch.cli.state import find_coordinator
from anabranch.cli.statements import show_statements
from anabranch.errors import AnabranchError, ConfigError, Interrupted
from anabranch.language.lexer import tokenize
from anabranch.language.source import Script
