"""Canal's Java client (canal.client 1.1.8) as a process that Python commands, for the demo and the tests.

In: commands as words. Out: what the client says about batches and entries. Read `client.py` first.
"""

from tidemill.playground.programs.canal_client.client import PROGRAM, ClientProcess, ClientRefused, JavaClient
from tidemill.playground.programs.canal_client.jars import compiled, jars

__all__ = ["PROGRAM", "ClientProcess", "ClientRefused", "JavaClient", "compiled", "jars"]
