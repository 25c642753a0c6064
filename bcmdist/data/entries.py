"""Entries of Redis Streams: batches of rows as Arrow bytes, published and read. Uses Redis and Arrow.

An entry `redis://HOST:PORT/DB/STREAM[ID]` is a small data set of its own, and one partition. Its field `data` is an
Arrow IPC stream with a column `y`, companions by name, and as inputs either a column `X` of fixed-size lists or all
other numeric columns in order. The total size that the record batches declare is compared with a limit before any
batch is decoded; bytes after the end of the stream are refused.

The password is given in the URL passed to `publish` or `open_source`, or in the environment variable REDISCLI_AUTH,
where workers find it. It is not part of any name.
"""

import math
import struct
import uuid

import numpy as np

from bcmdist.data.reader import EntryShape
from bcmdist.data.redis import ENTRY, REMEMBERED, patiently, redis_stream
from bcmdist.data.tables.column import Table
from bcmdist.data.tables.parquet import of_arrow
from bcmdist.data.values import as_float
from bcmdist.errors import InvalidData, InvalidOption, MissingChunk, MissingExtra, UnsafeData

# Largest stream that is decoded: rows x columns x 8 bytes.
LARGEST_BYTES = 2**28


# Add an entry and count its rows, exactly once even if a disconnected publisher repeats the request. KEYS: stream,
# its row count, record of the request. ARGV: data, rows, seconds for which the record is kept.
PUBLISH = """
local done = redis.call('GET', KEYS[3])
if done then return done end
local position = redis.call('INCRBY', KEYS[2], ARGV[2])
local id = redis.call('XADD', KEYS[1], '*', 'data', ARGV[1], 'position', position)
redis.call('SET', KEYS[3], id, 'EX', ARGV[3])
return id
"""


def encode(X, y, **companions) -> bytes:
    """Encode rows as the payload of an entry.

    Parameters
    ----------
    X : (n, D)
    y : (n,)
    companions : `weight`, `exposure`, `trials`, `event` or `target_variance`, (n,)

    Raises
    ------
    InvalidData, MissingExtra
    """
    pa = _pyarrow()
    X = np.ascontiguousarray(as_float(X, "X"))
    others = {name: as_float(values, name) for name, values in {"y": y, **companions}.items()}
    if X.ndim != 2 or any(values.shape != X.shape[:1] for values in others.values()):
        shapes = {"X": X.shape} | {name: values.shape for name, values in others.items()}
        raise InvalidData(f"entry: expected X (n, D) and the others (n,), got {shapes}; give one row each")
    columns = {"X": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])}
    columns |= {name: pa.array(values) for name, values in others.items()}
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def publish(
    url: str, X: np.ndarray, y: np.ndarray, *, rows_per_entry: int = 1000, **companions: np.ndarray
) -> list[str]:
    """Add rows to a stream, `rows_per_entry` per entry, and return the ids. One expert absorbs one entry.

    Each entry is added exactly once, even if the server restarts meanwhile. Its field `position` is the number of rows
    published to the stream up to and including the entry.

    Parameters
    ----------
    url : redis://HOST:PORT/DB/STREAM; a password in it is sent to the server only
    X : (n, D), in original units
    y : (n,)
    rows_per_entry : rows of an entry; the last entry may have fewer
    companions : `weight`, `exposure`, `trials`, `event` or `target_variance`, (n,)

    Returns
    -------
    Ids of the entries, in order.

    Raises
    ------
    InvalidData
        The arrays have other shapes.
    InvalidOption, MissingExtra
        `url` is of another form; the packages redis or pyarrow are missing.
    SourceUnreachable
        No server answers.

    Examples
    --------
    >>> ids = bcmdist.publish("redis://127.0.0.1:6379/0/rows", X, y, rows_per_entry=40)
    >>> len(ids)
    2
    """
    place, ids = redis_stream(url), []
    for start in range(0, len(X), rows_per_entry):
        rows = slice(start, start + rows_per_entry)
        data = encode(X[rows], y[rows], **{name: values[rows] for name, values in companions.items()})
        keys = (place.stream, f"{place.stream}:rows", f"{place.stream}:request:{uuid.uuid4().hex}")
        request = (PUBLISH, len(keys), *keys, data, len(X[rows]), REMEMBERED)
        ids.append(patiently(place, lambda client, request=request: client.eval(*request)).decode())
    return ids


def open_entry(url, x, y, companions) -> EntryShape:
    """Return the shape of an entry, after all checks except those of its values.

    Raises
    ------
    InvalidData, MissingChunk, MissingExtra, SourceUnreachable, UnsafeData
    """
    return shape_of(_payload(url), url, x, y, companions)


def shape_of(fields, url, x, y, companions) -> EntryShape:
    """As `open_entry`, from fields of an entry that were already fetched."""
    schema, rows, _ = _opened(fields, url)
    inputs, others = _roles(schema, url, x, y, companions)
    width = sum(_width(schema.field(name)) for name in inputs)
    present = tuple(name for name in others if name in companions)
    unused = tuple(name for name in schema.names if name not in (*inputs, *others))
    return EntryShape(rows, width, present, () if inputs == [x] else tuple(inputs), unused)


def read_entry(url, x, y, companions) -> dict[str, np.ndarray]:
    """Return the columns of an entry by name, float64: x (n, D), y (n,) and the companions (n,) that it contains.

    Raises
    ------
    As `open_entry`.
    """
    return decoded(_payload(url), url, x, y, companions)[0]


def decoded(fields, url, x, y, companions, tables=()) -> tuple[dict[str, np.ndarray], list[str]]:
    """As `read_entry`, from fields of an entry that were already fetched; also return the names of the input columns.
    `tables` are further columns (n, ...) of fixed-size lists, read if present."""
    schema, _, messages = _opened(fields, url)
    inputs, others = _roles(schema, url, x, y, companions, tables)
    batches = _batches(messages, schema, url)
    columns = {name: _values(batches, schema.get_field_index(name), url, name) for name in (*inputs, *others)}
    found = {name: columns[name] for name in others} | {x: np.column_stack([columns[name] for name in inputs])}
    return found, inputs


def table_of(data: bytes, where: str, names) -> Table:
    """Return columns of any type of an Arrow stream in memory, by name, after the checks of `open_entry`.

    Raises
    ------
    InvalidData, MissingExtra, UnsafeData
    """
    pa = _pyarrow()
    schema, _, messages = _opened({b"data": data}, where)
    batches = _batches(messages, schema, where, full=True)
    numbers = {name: schema.get_field_index(name) for name in names}
    return {
        name: of_arrow(pa, name, pa.concat_arrays([batch.column(number) for batch in batches]))
        for name, number in numbers.items()
    }


def names_of(data: bytes, where: str) -> list[str]:
    """Return the names of the columns of an Arrow stream in memory; errors as `table_of`."""
    return _opened({b"data": data}, where)[0].names


class StreamEntries:
    """`Reader` of entries, for the registry of schemes."""

    @staticmethod
    def named(url) -> str:
        return redis_stream(url).url

    @staticmethod
    def shape(url, x, y, companions) -> EntryShape:
        return open_entry(url, x, y, companions)

    @staticmethod
    def columns(url, x, y, companions) -> dict[str, np.ndarray]:
        return read_entry(url, x, y, companions)


def _payload(url):
    """Fetch the fields of an entry from its server; None if the entry is gone."""
    match = ENTRY.fullmatch(str(url))
    if match is None:
        raise InvalidOption(
            f"data: expected a Zarr data set, {redis_stream(url).url} is a stream; `bcmdist ingest` absorbs it"
        )
    place, number = redis_stream(match["stream"]), match["id"]
    found = patiently(place, lambda client: client.xrange(place.stream, number, number))
    return found[0][1] if found else None


def _opened(fields, url):
    """Return the schema, the number of rows and the undecoded non-empty record batches of an entry, after checking that
    their declared size is within the limit."""
    if fields is None:
        raise MissingChunk(
            f"{url}: expected the entry in its stream, it is not there any more; keep entries until they are absorbed "
            "(and for as long as they may be forgotten), or publish its rows again"
        )
    if b"data" not in fields:
        names = ", ".join(name.decode(errors="replace") for name in fields)
        raise InvalidData(
            f"{url}: expected a field data with an Arrow IPC stream, found {names}; see bcmdist.data.entries"
        )
    schema, messages, declared = _messages(fields[b"data"], url)
    rows, width = sum(declared), sum(map(_width, schema))
    if rows == 0 or width == 0:
        raise InvalidData(f"{url}: expected at least one row and one column, got {rows} and {width}; publish rows")
    if min(declared) < 0 or rows * width * 8 > LARGEST_BYTES:
        raise UnsafeData(
            f"{url}: expected at most {LARGEST_BYTES} bytes of rows, it declares {rows} rows x {width} columns x 8; "
            "publish smaller batches"
        )
    return schema, rows, [message for message, held in zip(messages, declared, strict=True) if held]


def _messages(data, url):
    """Return the schema of a stream, its undecoded messages, and the number of rows that each declares."""
    pa = _pyarrow()
    try:
        source = pa.BufferReader(data)
        reader = pa.ipc.MessageReader.open_stream(source)
        first = reader.read_next_message()
        if first.type != "schema":  # pyarrow would not check the type, and crash
            raise ValueError(f"it begins with a message of type {first.type}")
        schema = pa.ipc.read_schema(first)
        _ = schema.names  # decodes the names, which may fail
        messages = [reader.read_next_message(), *reader]
        headers = [_header(one.metadata.to_pybytes()) if one.type == "record batch" else (0, True) for one in messages]
    except (pa.ArrowException, StopIteration, struct.error, OSError, ValueError) as error:
        raise InvalidData(
            f"{url}: expected an Arrow IPC stream with a record batch, it cannot be read ({error!r}); publish it again"
        ) from error
    if source.tell() < source.size():
        raise InvalidData(
            f"{url}: expected nothing behind the end of its Arrow stream, got {source.size() - source.tell()} bytes; "
            "publish one stream in each entry"
        )
    odd = next((message for message, (_, compressed) in zip(messages, headers, strict=True) if compressed), None)
    if odd is not None:
        raise UnsafeData(
            f"{url}: expected uncompressed record batches without dictionaries, got another {odd.type}; publish them "
            "as `bcmdist.data.entries.encode` does"
        )
    return schema, messages, [rows for rows, _ in headers]


def _batches(messages, schema, url, *, full=False):
    """Decode and validate record batches; `full`: also the offsets and encoding of texts."""
    pa = _pyarrow()
    try:
        batches = [pa.ipc.read_record_batch(message, schema) for message in messages]
        for batch in batches:
            batch.validate(full=full)
    except (pa.ArrowException, OSError) as error:
        raise InvalidData(f"{url}: expected a record batch, it cannot be read ({error}); publish it again") from error
    return batches


def _header(metadata):
    """Return the declared length of a record batch and whether it is compressed: fields 0 and 3 of table RecordBatch.

    Read from the flatbuffer (Arrow columnar format, Message.fbs), because sizes must be known before decoding.
    """
    message = struct.unpack_from("<I", metadata, 0)[0]
    header = _field(metadata, message, 2)
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    length, compression = _field(metadata, batch, 0), _field(metadata, batch, 3)
    return (struct.unpack_from("<q", metadata, length)[0] if length else 0), bool(compression)


def _field(buffer, table, number):
    """Return the position of a field of a flatbuffer table; 0 if the field has its default."""
    (back,) = struct.unpack_from("<i", buffer, table)
    (size,) = struct.unpack_from("<H", buffer, table - back)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", buffer, table - back + 4 + 2 * number)
    return table + offset if offset else 0


def _roles(schema, url, x, y, companions, tables=()):
    """Return the names of the input columns, and of the target, companions and tables to read."""
    pa = _pyarrow()
    names = schema.names
    numeric = [field.name for field in schema if _is_number(pa, field.type)]
    others = [name for name in (*([y] if y is not None else []), *companions) if name == y or name in names]
    lists = [field.name for field in schema if hasattr(field.type, "list_size") and _is_number(pa, _leaf(field.type))]
    present = [name for name in tables if name in names]
    for name in (*others, *present):
        kinds, kind = (lists, "fixed-size lists of numbers") if name in present else (numeric, "numbers")
        if name not in kinds or names.count(name) > 1:
            found = ", ".join(f"{field.name} ({field.type})" for field in schema)
            raise InvalidData(f"{url}: expected one column {name} of {kind}, found {found}; publish it, or name it")
    if x in names and hasattr(schema.field(names.index(x)).type, "list_size"):
        inputs = [x]
        good = _is_number(pa, schema.field(names.index(x)).type.value_type) and names.count(x) == 1
    else:
        inputs = [name for name in numeric if name not in others]
        good = len(set(inputs)) == len(inputs)
    if not inputs or not good:
        found = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise InvalidData(
            f"{url}: expected inputs as a column {x} of fixed-size lists of numbers, or as numeric columns, found "
            f"{found}; publish one of these"
        )
    return inputs, [*others, *present]


def _width(field):
    """Number of numeric columns in a field."""
    return math.prod(_sizes(field.type))


def _sizes(kind):
    """Sizes of the nested fixed-size lists of a type, outermost first."""
    while hasattr(kind, "list_size"):
        yield kind.list_size
        kind = kind.value_type


def _leaf(kind):
    while hasattr(kind, "list_size"):
        kind = kind.value_type
    return kind


def _is_number(pa, kind):
    types = pa.types
    return types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)


def _values(batches, number, url, name):
    """Values of a column over all batches, (n,), or (n, D, ...) for lists."""
    column = _pyarrow().concat_arrays([batch.column(number) for batch in batches])
    values, missing = column, column.null_count
    for _ in _sizes(column.type):
        values = values.flatten()
        missing += values.null_count
    if missing:
        raise InvalidData(f"{url}: expected a number in every row of {name}, some are null; fill or drop these rows")
    numbers = as_float(values.to_numpy(zero_copy_only=False), f"{url}: {name}")
    return numbers.reshape(len(column), *_sizes(column.type))


def _pyarrow():
    try:
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtra("source: Redis Streams need redis and pyarrow; pip install 'bcmdist[redis]'") from error
    return pyarrow
