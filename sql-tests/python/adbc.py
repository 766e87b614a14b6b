"""The stock ADBC driver for Flight SQL against a Spate server.

Started by run.sh with the path of the `spate` command. Every test runs against one server, in order.
"""

import datetime
import decimal
import signal
import subprocess
import sys
import threading
import time
import traceback

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa

ROWS = 1_000_000


def rows_of(connection, sql, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def raises(kind, part, action):
    try:
        action()
    except kind as e:
        assert part in str(e), str(e)
        return
    raise AssertionError(f"no {kind.__name__} with {part!r}")


def statements(connection):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, price double precision)")
        cursor.execute("INSERT INTO item VALUES (1, 'tea', 2.5), (2, 'jam', NULL)")
        assert cursor.rowcount == 2
        cursor.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(price) AS s FROM item")
    assert rows_of(connection, "SELECT * FROM item ORDER BY id") == [(1, "tea", 2.5), (2, "jam", None)]
    assert rows_of(connection, "SELECT * FROM total") == [(2, 2.5)]
    assert rows_of(connection, "UPDATE item SET price = 1 WHERE id = 2 RETURNING id, price") == [(2, 1.0)]
    assert rows_of(connection, "SELECT * FROM total") == [(2, 3.5)]


def errors(connection):
    error = connection.ProgrammingError
    raises(error, "(line 1, column 8)", lambda: rows_of(connection, "SELECT nope FROM item"))
    raises(error, "hint: did you mean", lambda: rows_of(connection, "SELECT * FROM itemz"))
    raises(error, "syntax error", lambda: rows_of(connection, "SELEC 1"))
    raises(error, "already exists", lambda: rows_of(connection, "CREATE TABLE item (id int)"))
    raises(connection.OperationalError, "division by zero", lambda: rows_of(connection, "SELECT 1 / 0"))


def parameters(connection):
    one = rows_of(connection, "SELECT name FROM item WHERE id = $1 AND price > $2", (1, 2.0))
    assert one == [("tea",)], one
    values = (
        datetime.date(2024, 1, 2),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
        decimal.Decimal("-1.50"),
        b"\x00\xff",
        True,
        None,
        "it's",
        -7,
        float("inf"),
    )
    names = ", ".join(f"${i + 1}" for i in range(len(values)))
    back = rows_of(connection, f"SELECT {names}", values)
    assert back == [values], back
    with connection.cursor() as cursor:
        schema = cursor.adbc_prepare("SELECT * FROM item WHERE id = $1 AND name = $2 AND $3 IS NULL")
        assert [f.type for f in schema] == [pa.int32(), pa.string(), pa.null()], schema
        cursor.execute("INSERT INTO item VALUES ($1, $2, $3)", (3, "cake", 4.5))
        assert cursor.rowcount == 1
        cursor.executemany("INSERT INTO item VALUES ($1, $2, $3)", [(4, "pie", 5.5), (5, "bun", None)])
        assert cursor.rowcount == 2
    assert rows_of(connection, "SELECT count(*) FROM item") == [(5,)]
    raises(connection.ProgrammingError, "parameters", lambda: rows_of(connection, "SELECT $1, $2", (1,)))


def types(connection):
    sql = (
        "SELECT 1::smallint, 2::int, 3::bigint, 1.5::real, 'x', date '2024-01-02', time '03:04:05', "
        "timestamp '2024-01-02 03:04:05', timestamptz '2024-01-02 03:04:05Z', interval '1 day', ARRAY[1, NULL], "
        "1.25::numeric(10,2), '\\x01'::bytea, NULL::boolean"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        table = cursor.fetch_arrow_table()
    kinds = [str(f.type) for f in table.schema]
    assert kinds[:8] == ["int16", "int32", "int64", "float", "string", "date32[day]", "time64[us]", "timestamp[us]"], kinds
    assert kinds[11:] == ["decimal128(10, 2)", "binary", "bool"], kinds
    row = table.to_pylist()[0]
    assert list(row.values())[10] == [1, None], row


def metadata(connection):
    schema = connection.adbc_get_table_schema("item")
    assert schema.names == ["id", "name", "price"] and schema.field("id").type == pa.int32(), schema
    assert not schema.field("name").nullable and schema.field("price").nullable
    assert "MATERIALIZED VIEW" in connection.adbc_get_table_types()
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "Spate", info
    objects = connection.adbc_get_objects(depth="all", db_schema_filter="public").read_all().to_pylist()
    (catalog,) = objects
    (public,) = [s for s in catalog["catalog_db_schemas"] if s["db_schema_name"] == "public"]
    tables = {t["table_name"]: t for t in public["db_schema_tables"]}
    assert tables["item"]["table_type"] == "TABLE" and tables["total"]["table_type"] == "MATERIALIZED VIEW", tables
    columns = [(c["column_name"], c["xdbc_type_name"]) for c in tables["item"]["table_columns"]]
    assert columns == [("id", "integer"), ("name", "text"), ("price", "double precision")], columns
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema("SELECT id FROM item").names == ["id"]


def numbers(n):
    return pa.table({
        "id": pa.array(range(n), pa.int64()),
        "name": pa.array([f"row {i}" for i in range(n)]),
        "half": pa.array([i / 2 for i in range(n)]),
        "at": pa.array([datetime.datetime(2024, 1, 1)] * n, pa.timestamp("ns")),
    })


def ingest(connection):
    table = numbers(ROWS)
    # One message may have 16 MiB unless the driver is told otherwise.
    pieces = lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=65_536))
    started = time.time()
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("big", pieces(), mode="create") == ROWS
        print(f"  {ROWS} rows in {time.time() - started:.1f} s")
        exists = lambda: cursor.adbc_ingest("big", table.slice(0, 1), mode="create")
        raises(connection.ProgrammingError, "already exists", exists)
        missing = lambda: cursor.adbc_ingest("none", table.slice(0, 1), mode="append")
        raises(connection.ProgrammingError, "does not exist", missing)
        assert rows_of(connection, "SELECT count(*), sum(id), max(name) FROM big") == [
            (ROWS, ROWS * (ROWS - 1) // 2, "row 999999")
        ]
        assert cursor.adbc_ingest("big", table.slice(0, 10), mode="append") == 10
        assert cursor.adbc_ingest("big", table.slice(0, 7), mode="replace") == 7
        assert cursor.adbc_ingest("big", table.slice(0, 3), mode="create_append") == 3
    assert rows_of(connection, "SELECT count(*) FROM big") == [(10,)]
    dictionary = pa.table({"kind": pa.array(["a", "b", "a"]).dictionary_encode(), "none": pa.nulls(3)})
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("kinds", dictionary, mode="create") == 3
    assert rows_of(connection, "SELECT kind, count(none), count(*) FROM kinds GROUP BY kind ORDER BY kind") == [
        ("a", 0, 2),
        ("b", 0, 1),
    ]


def big_results(connection):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT value, repeat('x', 50) AS pad FROM generate_series(1, {ROWS}) AS a(value)")
        assert cursor.fetch_arrow_table().num_rows == ROWS


def subscription(connection, url):
    with flight_sql.connect(url, autocommit=True) as other, other.cursor() as cursor:
        cursor.execute("SUBSCRIBE TO total")
        reader = cursor.fetch_record_batch()
        assert reader.schema.names == ["n", "s", "__weight", "__epoch"], reader.schema
        assert reader.schema.field("__weight").type == pa.int64()
        assert reader.schema.field("__epoch").type == pa.uint64()
        held = {}

        def read_until(n):
            while True:
                for row in reader.read_next_batch().to_pylist():
                    key = (row["n"], row["s"])
                    held[key] = held.get(key, 0) + row["__weight"]
                rows = [k for k, weight in held.items() if weight]
                assert all(weight >= 0 for weight in held.values()), held
                if len(rows) == 1 and rows[0][0] == n:
                    return

        read_until(5)
        rows_of(connection, "INSERT INTO item VALUES (6, 'roll', 1)")
        read_until(6)
        rows_of(connection, "DELETE FROM item WHERE id IN (5, 6)")
        read_until(4)
        # Another thread ends what would go on for ever.
        threading.Timer(0.3, cursor.adbc_cancel).start()
        try:
            while True:
                reader.read_next_batch()
        except (StopIteration, OSError, pa.ArrowException, flight_sql.Error):
            pass


def sessions(connection, url):
    rows_of(connection, "SET read_timeout = '5 s'")
    assert rows_of(connection, "SHOW read_timeout") == [("5000 ms",)]
    with flight_sql.connect(url, autocommit=True) as other:
        assert rows_of(other, "SHOW read_timeout") == [("30000 ms",)]
    # A user name makes the driver shake hands; cookies carry the session then.
    options = {"username": "me", "password": "any", "adbc.flight.sql.rpc.with_cookie_middleware": "true"}
    with flight_sql.connect(url, db_kwargs=options, autocommit=True) as other:
        rows_of(other, "SET read_timeout = '6 s'")
        assert rows_of(other, "SHOW read_timeout") == [("6000 ms",)]
    connection.adbc_connection.set_options(**{"adbc.flight.sql.session.option.read_timeout": "8 s"})
    assert rows_of(connection, "SHOW read_timeout") == [("8000 ms",)]


def transactions(connection):
    commit = lambda: connection.adbc_connection.set_autocommit(False)
    try:
        commit()
    except flight_sql.Error as e:
        assert "ransaction" in str(e) or "autocommit" in str(e), str(e)
    else:
        raise AssertionError("a transaction was begun")


def main():
    command = [sys.argv[1], "server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    failures = 0
    try:
        url = server.stdout.readline().removeprefix("flight: grpc://").strip()
        server.stdout.readline()
        url = f"grpc+tcp://{url}"
        tests = [statements, errors, parameters, types, metadata, ingest, big_results, transactions]
        with flight_sql.connect(url, autocommit=True) as connection:
            tests += [
                lambda c: subscription(c, url),
                lambda c: sessions(c, url),
            ]
            names = ["subscription", "sessions"]
            for i, test in enumerate(tests):
                name = test.__name__ if test.__name__ != "<lambda>" else names[i - len(tests) + len(names)]
                started = time.time()
                try:
                    test(connection)
                    print(f"ok     {name} ({time.time() - started:.2f} s)", flush=True)
                except Exception:
                    failures += 1
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=20)
    if code != 0:
        print(f"FAILED the server ended with {code}")
        failures += 1
    print("ok" if failures == 0 else f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
