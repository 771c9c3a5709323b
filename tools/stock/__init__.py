"""Matrix of stock models and losses of ``tools/stock_matrix.py``."""

from typing import Any

Row = dict[str, Any]
