"""TiCDC's CSV: one line for each row, for storage sinks. See TYPES.md for the fields.

In: rows; or lines. Out: lines; or events. Read `encode.py` first.
"""

from tidemill.protocols.csv.control import control_messages
from tidemill.protocols.csv.decode import CsvError, CsvLine, CsvReader
from tidemill.protocols.csv.encode import CsvTable

__all__ = ["CsvError", "CsvLine", "CsvReader", "CsvTable", "control_messages"]
