"""Random schemas and records are those of the tests of decode."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "decode"))
