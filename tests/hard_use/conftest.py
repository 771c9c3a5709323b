import sys
from pathlib import Path

TOOLS = str(Path(__file__).parents[2] / 'tools')
if TOOLS not in sys.path:
    sys.path.append(TOOLS)

collect_ignore = ['dying_rank.py', 'killed_training.py']
"""Programs that tests start, and what they import: nothing to look for examples in."""
