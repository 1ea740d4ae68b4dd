"""Connections to the database: opened, set up, and what they raise sorted into our errors."""

from __future__ import annotations

import base64
import binascii
import re
import socket
import ssl
import struct
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any

from tidemill import credentials
from tidemill.config.database import DatabaseTls, MysqlOptions
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.extras import extra
from tidemill.protocols.sql.hints import Program, hint_of
from tidemill.protocols.sql.missed import Answer
from tidemill.sinks.mysql import session
from tidemill.sinks.mysql.codes import VALUE_REFUSED, Fate, fate_of
from tidemill.visible import cut

with extra("mysql"):
    import pymysql
    from pymysql.constants import CLIENT
    from pymysql.cursors import SSCursor

ACCESS_DENIED = 1045
CANNOT_AUTHENTICATE = 2059
"""CR_AUTH_PLUGIN_CANNOT_LOAD, which MySQL's own client ends with then."""
_IN_CLEAR = ("mysql_clear_password", "dialog")
"""Ways to log in that send the password as it is."""
FETCHED = 1024
KILL_MS = 5_000
"""How long to wait for a server that is to end a statement."""
MALFORMED = 2027
"""CR_MALFORMED_PACKET: what came is no answer of a database."""
LARGEST_ANSWER = 256 << 20
"""Bytes of one answer, or of one row that is read by itself: TiDB's largest row has half of them."""
_NO_ANSWER = frozenset({0, 2003, 2006, 2013, 2014, MALFORMED, 2055})
_UNREADABLE = (ArithmeticError, AssertionError, LookupError, NameError, RuntimeError, ValueError, struct.error)
"""What PyMySQL raises, without a word of its own, for bytes that it does not expect. The connection is out of step then."""
SHOWN = 300
"""Characters of a statement that an error shows."""
_DDL = re.compile(r"\s*(ALTER|CREATE|DROP|RENAME|TRUNCATE)\b", re.IGNORECASE)
_LITERAL = re.compile(
    r"(`(?:[^`]|``)*`?)"  # a name is kept
    r"|(?:\b(?:_\w+|[xXbBnN]) ?)?'(?:[^'\\]|\\.|'')*(?:'|\\?$)"  # a text, with its introducer, cut short or not
    r"|(?<![\w`])-?\d[\w.]*(?:(?<=[eE])[+-]\d+)?",
    re.DOTALL,
)


def without_values(statement: str) -> str:
    """Return a statement as errors show it: with ? for the values of rows, which do not belong into logs. A DDL is returned as it is."""
    return statement if _DDL.match(statement) else _LITERAL.sub(lambda found: found[1] or "?", statement)


class ServerFault(Exception):
    """What a server or a connection answered: its code, what follows, and the statement."""

    def __init__(self, code: int, text: str, statement: str = "") -> None:
        super().__init__(f"error {code}: {text}")
        self.code, self.text, self.statement, self.fate = code, text, statement, fate_of(code, text)

    def error(self, where: str, program: Program = Program.CHANGEFEED) -> SinkError:
        """Return our error for it, with what to do in the program that meets it."""
        text = f"{where}: error {self.code}: {self.text}" + (f", at {without_values(self.statement)[:SHOWN]}" if self.statement else "")
        kind = SinkError if self.fate in (Fate.FAIL, Fate.SPLIT) else SinkUnavailable
        return kind(text, hint=hint_of(self.code, program))


@contextmanager
def faults(statement: bytes | str = "") -> Iterator[None]:
    """Turn what PyMySQL raises into ServerFault."""
    shown = statement if isinstance(statement, str) else statement[: 4 * SHOWN].decode("utf-8", "replace")
    try:
        yield
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else _code_of(error)
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        raise ServerFault(code, text or "the connection is closed", shown) from error
    except OSError as error:
        raise ServerFault(2013, str(error), shown) from error
    except UnicodeEncodeError:
        raise  # of what was to be sent
    except _UNREADABLE as error:
        raise ServerFault(MALFORMED, f"the server sent what is no answer: {cut(str(error) or type(error).__name__)}", shown) from error


def _code_of(error: pymysql.err.MySQLError) -> int:
    """Return a code for what PyMySQL raises without one: it refuses a value itself, or does not understand the server."""
    return VALUE_REFUSED if isinstance(error, pymysql.err.ProgrammingError) else 0


class Connection:
    """One session. Not safe for threads. All methods raise ServerFault."""

    def __init__(self, options: MysqlOptions, zone: str = "+00:00") -> None:
        self.where = f"{options.host}:{options.port}"
        self._options, self._id, self._busy = options, 0, False
        self._raw = _opened(options)
        try:
            with faults():
                version, number = self.rows("SELECT VERSION(), CONNECTION_ID()")[0]
                self.server, self._id = session.Server(str(version)), int(number)
            for statement, needed in session.settings(self.server, zone, optimistic=options.optimistic):
                self._set(statement, needed=needed)
            with faults():
                self.max_packet = int(self.rows("SELECT @@max_allowed_packet")[0][0])
        except BaseException:
            self.close()
            raise

    def _set(self, statement: str, *, needed: bool) -> None:
        try:
            self.run(statement)
        except ServerFault as fault:
            if needed or fault.code != session.UNKNOWN_VARIABLE:
                raise

    def run(self, statement: bytes | str, *values: object) -> int:
        """Run a statement, or several with a semicolon between them. Returns how many rows the last one found."""
        with faults(statement), self._at_work(), self._raw.cursor() as cursor:
            cursor.execute(statement, values or None)
            while cursor.nextset():
                pass
            return int(cursor.rowcount)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The server may go on with a statement whose answer did not come: only an answer, or an error of the server, ends this."""
        self._busy = True
        try:
            yield
        except pymysql.err.MySQLError as error:
            self._busy = not error.args or error.args[0] in _NO_ANSWER
            raise
        self._busy = False

    def rows(self, statement: bytes | str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; of several statements the rows of the first that has any."""
        return next((list(one.rows) for one in self.answers(statement, *values) if one.rows), [])

    def answers(self, statement: bytes | str, *values: object) -> list[Answer]:
        """Run a statement, or several with a semicolon between them, and return the answer to each."""
        with faults(statement), self._at_work(), self._raw.cursor() as cursor:
            cursor.execute(statement, values or None)
            found = [_answer(cursor)]
            while cursor.nextset():
                found.append(_answer(cursor))
            return found

    def byte_rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; a text has a character for each byte: of SHOW CREATE TABLE not all are characters."""
        charset, self._raw.encoding = self._raw.encoding, "latin1"
        try:
            return self.rows(statement.encode())
        finally:
            self._raw.encoding = charset

    def streamed(self, statement: str) -> Generator[tuple[Any, ...]]:
        """Run a query and yield its rows as the server sends them. The connection is free again when all are taken or it is closed."""
        with faults(statement), self._raw.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            while some := cursor.fetchmany(FETCHED):
                yield from some

    def commit(self) -> None:
        """Commit."""
        with faults("COMMIT"), self._at_work():
            self._raw.commit()

    def rollback(self) -> None:
        """Undo what is not committed."""
        with faults("ROLLBACK"):
            self._raw.rollback()

    def kill(self) -> None:
        """Let the server end the statement that runs over this connection, if one does, over another connection. Never raises."""
        if not self._busy or not self._id:
            return
        quick = replace(self._options, connect_timeout=KILL_MS, read_timeout=KILL_MS, write_timeout=KILL_MS)
        with suppress(ServerFault, SinkError), closing(_opened(quick)) as other, faults("KILL"):
            other.query(f"KILL QUERY {self._id}")

    def interrupt(self) -> None:
        """End what another thread runs over the connection, here and in the server. The thread gets a lost connection. Never raises."""
        self.kill()
        with suppress(OSError, AttributeError):
            self._raw._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection without a word to the server. What is not committed is undone by it. Never raises."""
        self._raw._force_close()


def _answer(cursor: Any) -> Answer:
    message = cursor._result.message  # PyMySQL shows it nowhere else
    return Answer(cursor.fetchall(), int(cursor.rowcount), message.decode("utf-8", "replace") if message else "")


def decoded(password: str) -> str | None:
    """Return the password that this is the base64 of, or None."""
    try:
        return base64.b64decode(password, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _opened(options: MysqlOptions) -> Any:
    """Connect. As in TiCDC a password that is refused may be the base64 of the password."""
    password = credentials.read(options.password)
    try:
        return _connect(options, password)
    except ServerFault as fault:
        plain = decoded(password) if fault.code == ACCESS_DENIED and password else None
        if plain is None:
            raise
        return _connect(options, plain)


class _NotInClear:
    """Does not send the password in clear text, whatever the server asks for: anybody may answer at the address, or stand between. TLS that
    the options do not ask for does not change that, because nobody's certificate is checked then."""

    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        """Raise what ends the login."""
        raise pymysql.err.OperationalError(
            CANNOT_AUTHENTICATE, "the server asks for the password in clear text, and it is not sent without TLS"
        )


@cache
def _unchecked() -> ssl.SSLContext:
    """TLS that the options do not ask for: nobody's certificate is checked then. PyMySQL would read the system's for each connection,
    which takes longer than the rest of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _Measured(pymysql.connections.Connection):  # type: ignore[misc]
    """Takes LARGEST_ANSWER bytes at most: whoever answers at the address may send without end."""

    _taken = 0

    def _create_ssl_ctx(self, asked: Any) -> Any:
        return super()._create_ssl_ctx(asked or _unchecked())

    def _execute_command(self, command: int, sql: bytes | str) -> None:
        self._taken = 0
        super()._execute_command(command, sql)

    def _read_packet(self, *kind: Any) -> Any:
        if self._result is not None and self._result.unbuffered_active:  # the rows before are not kept
            self._taken = 0
        return super()._read_packet(*kind)

    def _read_bytes(self, size: int) -> Any:
        self._taken += size
        if self._taken > LARGEST_ANSWER:
            self._force_close()
            raise pymysql.err.OperationalError(MALFORMED, f"the server's answer has more than {LARGEST_ANSWER:,} bytes")
        return super()._read_bytes(size)


class _WithoutServersKey(_Measured):
    """Takes no public key from the server to encrypt the password with: who answers at the address has the private one, and reads it. The
    same holds for TLS that the options do not ask for: nobody's certificate is checked then."""

    @property
    def _secure(self) -> bool:
        """Whether the password may be sent as it is."""
        return False

    @_secure.setter
    def _secure(self, secure: bool) -> None:
        pass

    @property
    def server_public_key(self) -> None:
        """Asked for where the password is to be encrypted."""
        if self.password:
            raise pymysql.err.OperationalError(
                CANNOT_AUTHENTICATE,
                "the server asks for the password, encrypted for itself: without ssl-ca or mysql+ssl:// anybody may have asked "
                "(get-server-public-key=true sends it)",
            )

    @server_public_key.setter
    def server_public_key(self, key: bytes | None) -> None:
        pass


def _connect(options: MysqlOptions, password: str) -> Any:
    kind = _Measured if options.servers_key or options.tls is not None else _WithoutServersKey
    with faults():
        return kind(
            host=options.host,
            port=options.port,
            user=options.user,
            password=password.encode(),  # PyMySQL takes a str for Latin-1; servers hash what a client in UTF-8 has set
            charset="utf8mb4",
            autocommit=False,
            client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
            connect_timeout=max(1, options.connect_timeout // 1000),
            read_timeout=options.read_timeout / 1000,
            write_timeout=options.write_timeout / 1000,
            ssl=_context(options.tls) if options.tls is not None else None,
            program_name="tidemill",
            auth_plugin_map=None if options.tls is not None else dict.fromkeys(_IN_CLEAR, _NotInClear),
        )


def _context(tls: DatabaseTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key, credentials.key_password(tls.key_password))
        return context
    except (OSError, ssl.SSLError) as error:
        raise SinkError(f"ssl-ca, ssl-cert, ssl-key: {error}") from None


def check_reachable(uri: SinkUri) -> None:
    """Raise SinkError or SinkUnavailable if the database of a sink URI does not answer, or does not take the credentials."""
    options = uri.database
    try:
        with closing(Connection(options)) as connection:
            connection.rows("SELECT 1")
    except ServerFault as fault:
        raise fault.error(f"{options.host}:{options.port}") from fault
