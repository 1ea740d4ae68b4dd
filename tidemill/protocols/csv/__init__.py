"""TiCDC's CSV: lines of rows, for storage sinks. See TYPES.md for the fields."""

from tidemill.protocols.csv.decode import CsvError, CsvLine, CsvReader
from tidemill.protocols.csv.encode import CsvTable
from tidemill.protocols.csv.words import words

__all__ = ["CsvError", "CsvLine", "CsvReader", "CsvTable", "words"]
