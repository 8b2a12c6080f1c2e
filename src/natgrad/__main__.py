"""`python -m natgrad`."""

import sys

from natgrad.cli import main

sys.exit(main())
