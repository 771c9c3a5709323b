import sys
from pathlib import Path

TOOLS = str(Path(__file__).parents[2] / 'tools')
if TOOLS not in sys.path:
    sys.path.append(TOOLS)
