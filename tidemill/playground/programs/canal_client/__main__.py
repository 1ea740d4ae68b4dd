"""`python -m tidemill.playground.programs.canal_client`: fetch the client and compile its program, so that later starts need no network."""

from tidemill.playground.programs.canal_client.client import PROGRAM
from tidemill.playground.programs.canal_client.jars import compiled, jars
from tidemill.playground.programs.maven import told

compiled(PROGRAM, jars())
print(told("Canal's Java client", jars()))
