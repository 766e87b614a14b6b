//! What parses to what, what is refused and where.
#![allow(clippy::unwrap_used)]

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use spate_engine::types::error::ErrorKind;

use super::statement::*;
use super::*;

fn one(sql: &str) -> Statement {
    match parse_one(sql) {
        Ok(p) => p.statement,
        Err(e) => panic!("{sql}: {e} at {:?}", e.position()),
    }
}

fn table(sql: &str) -> CreateTable {
    match one(sql) {
        Statement::CreateTable(t) => t,
        other => panic!("{other:?}"),
    }
}

fn list<T: ToString>(before: &str, items: &[T]) -> String {
    if items.is_empty() {
        return String::new();
    }
    format!("{before}{}", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// A short form of what a statement says, or `kind line:column message (hint)`.
fn brief(sql: &str) -> String {
    let input = |i: &Input| match i {
        Input::Relation(n) => n.to_string(),
        Input::Query { query, emit_on_window_close, .. } => {
            format!("[{query}]{}", if *emit_on_window_close { " emit" } else { "" })
        }
    };
    match parse_one(sql).map(|p| p.statement) {
        Err(e) => {
            let (l, c) = e.position().unwrap_or((0, 0));
            let hint = e.hint().map(|h| format!(" ({h})")).unwrap_or_default();
            format!("{:?} {l}:{c} {e}{hint}", e.kind())
        }
        Ok(s) => match s {
            Statement::Query(q) => format!("query {q}"),
            Statement::CreateView(v) => format!("view {} {:?} [{}]", v.name, v.columns, v.query_text),
            Statement::CreateMaterializedView(v) => format!(
                "mv {} {:?} {:?} [{}]{}",
                v.name,
                v.columns,
                v.options,
                v.query_text,
                if v.emit_on_window_close { " emit" } else { "" }
            ),
            Statement::CreateSink(s) => {
                format!("sink {} {} {:?} {:?}", s.name, input(&s.input), s.options, s.format.map(|f| f.encode))
            }
            Statement::Insert(i) => format!(
                "insert {} {:?} {}{}",
                i.table,
                i.columns,
                i.source.map_or("default values".to_string(), |q| q.to_string()),
                list(" returning ", &i.returning)
            ),
            Statement::Update(u) => format!(
                "update {} {:?} {}{} where {}{}",
                u.table,
                u.alias,
                u.assignments.iter().map(|(c, e)| format!("{c}={e}")).collect::<Vec<_>>().join(","),
                list(" from ", &u.from),
                u.selection.map(|e| e.to_string()).unwrap_or_default(),
                list(" returning ", &u.returning)
            ),
            Statement::CreateTableAs(c) => format!("table {} {:?} {} {}", c.name, c.columns, c.query, c.with_data),
            Statement::Delete(d) => {
                format!(
                    "delete {} {:?} where {}",
                    d.table,
                    d.alias,
                    d.selection.map(|e| e.to_string()).unwrap_or_default()
                )
            }
            Statement::Copy(c) => format!("copy {} {:?} {} {:?}", c.table, c.columns, c.path, c.options),
            Statement::Subscribe(s) => format!("subscribe {} {} {:?}", input(&s.target), s.snapshot, s.as_of),
            Statement::Explain(e) => {
                let json = if e.json { " json" } else { "" };
                format!("explain {:?} {} {}{json}", e.mode, e.verbose, e.statement.verb())
            }
            Statement::Drop(d) => format!(
                "drop {} {} {} {}",
                d.kind,
                d.names.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(","),
                d.if_exists,
                d.cascade
            ),
            other => format!("{other:?}"),
        },
    }
}

#[track_caller]
fn check(sql: &str, expect: &str) {
    assert_eq!(brief(sql), expect, "{sql}");
}

#[test]
fn create_table_in_full() {
    let t = table(
        "CREATE TABLE IF NOT EXISTS Shop.\"Orders\" (
            id bigint, region text NOT NULL DEFAULT 'eu' || 'x', total numeric(10, 2) NULL DEFAULT 1 + 1,
            ts timestamp, tags text[], WATERMARK FOR ts AS ts - INTERVAL '5 seconds', PRIMARY KEY (region, id)
        ) APPEND ONLY ON CONFLICT DO NOTHING
        WITH (connector = 'file', Scan.Startup.mode = 'earliest', rows = 10, neg = -1.5, flag = true, \"Quoted\" = 'a')
        FORMAT PLAIN ENCODE JSON (timestamps = 'iso')",
    );
    assert_eq!(t.name, Name::qualified("shop", "Orders"));
    assert!(t.if_not_exists && !t.or_replace && !t.source && t.append_only);
    assert_eq!(t.on_conflict, OnConflict::Nothing);
    assert_eq!(t.primary_key, [1, 0]);
    assert_eq!(t.watermark, Some(WatermarkDef { column: "ts".into(), delay_us: 5_000_000 }));
    let options: Vec<String> = t.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        options,
        ["connector=file", "flag=true", "neg=-1.5", "quoted=a", "rows=10", "scan.startup.mode=earliest"]
    );
    let f = t.format.unwrap();
    assert_eq!((f.format.as_str(), f.encode.as_str(), f.options.len()), ("plain", "json", 1));
    let c: Vec<_> =
        t.columns.iter().map(|c| (c.name.as_str(), c.nullable, c.primary_key, c.default.is_some())).collect();
    assert_eq!(
        c,
        [
            ("id", false, true, false),
            ("region", false, true, true),
            ("total", true, false, true),
            ("ts", true, false, false),
            ("tags", true, false, false)
        ]
    );
}

#[test]
fn create_table_briefly() {
    let t = table("create source s with (connector = nexmark)");
    assert!(t.source && t.columns.is_empty());
    assert_eq!(t.options["connector"], "nexmark");
    let t = table("CREATE OR REPLACE TABLE t (a int PRIMARY KEY DEFAULT 1 NOT NULL, watermark int)");
    assert!(t.or_replace && t.columns.len() == 2);
    assert_eq!((t.primary_key.as_slice(), t.on_conflict), ([0].as_slice(), OnConflict::Error));
    let t = table("CREATE SOURCE s (WATERMARK FOR ts AS ts) WITH (connector = 'file')");
    assert_eq!(t.watermark.unwrap().delay_us, 0);
    let t = table("CREATE TABLE t (a int, b int, CONSTRAINT k PRIMARY KEY (b)) ON CONFLICT OVERWRITE");
    assert_eq!((t.primary_key.as_slice(), t.on_conflict), ([1].as_slice(), OnConflict::Overwrite));
}

#[test]
fn watermarks() {
    let delay = |e: &str| {
        parse_one(&format!("CREATE TABLE t (ts timestamptz, n int, WATERMARK FOR ts AS {e})")).map(|p| {
            match p.statement {
                Statement::CreateTable(t) => t.watermark.unwrap().delay_us,
                other => panic!("{other:?}"),
            }
        })
    };
    for (e, us) in [
        ("ts", 0),
        ("(ts - INTERVAL '1 minute')", 60_000_000),
        ("ts - INTERVAL '5' SECOND", 5_000_000),
        ("ts - INTERVAL '0.5 seconds'", 500_000),
        ("ts - INTERVAL '1 day' - INTERVAL '1 ms'", 86_400_001_000),
        ("TS - INTERVAL '5'", 5_000_000),
    ] {
        assert_eq!(delay(e).map_err(|e| e.to_string()), Ok(us), "{e}");
    }
    for e in [
        "n",
        "ts + INTERVAL '1 s'",
        "ts - INTERVAL '1 month'",
        "ts - INTERVAL '-1 second'",
        "ts - n",
        "ts - INTERVAL 'x'",
    ] {
        let error = delay(e).unwrap_err();
        assert!(error.position().is_some(), "{e}: {error}");
    }
    let e = parse("CREATE TABLE t (a int, WATERMARK FOR a AS a)").unwrap_err();
    assert_eq!((e.kind(), e.message()), (ErrorKind::Type, "watermark column \"a\" must be a timestamp, not integer"));
    let e = parse("CREATE TABLE t (times timestamp, WATERMARK FOR time AS time)").unwrap_err();
    assert_eq!((e.kind(), e.hint()), (ErrorKind::NotFound, Some("did you mean \"times\"?")));
}

#[test]
fn views_and_sinks() {
    check("CREATE VIEW v AS SELECT 1 -- done", "view v [] [SELECT 1]");
    check("CREATE VIEW s.v (A, \"B\") AS TABLE t", "view s.v [\"a\", \"B\"] [TABLE t]");
    check(
        "CREATE MATERIALIZED VIEW m WITH (fault.strategy = 'replica', parallelism = 2) AS\n SELECT a FROM t GROUP BY 1 EMIT ON WINDOW CLOSE",
        "mv m [] {\"fault.strategy\": \"replica\", \"parallelism\": \"2\"} [SELECT a FROM t GROUP BY 1] emit",
    );
    check(
        "CREATE SINK s FROM v WITH (connector = 'stdout') FORMAT PLAIN ENCODE CSV",
        "sink s v {\"connector\": \"stdout\"} Some(\"csv\")",
    );
    // sqlparser would take WITH for a table hint, EMIT and FORMAT for aliases.
    check(
        "CREATE SINK s AS SELECT a FROM t EMIT ON WINDOW CLOSE WITH (connector = 'x') FORMAT UPSERT ENCODE JSON",
        "sink s [SELECT a FROM t] emit {\"connector\": \"x\"} Some(\"json\")",
    );
    check(
        "CREATE SINK s AS WITH c AS (SELECT 1 AS a) SELECT * FROM c FORMAT PLAIN ENCODE JSON WITH (connector = 'x')",
        "sink s [WITH c AS (SELECT 1 AS a) SELECT * FROM c] {\"connector\": \"x\"} Some(\"json\")",
    );
    check("CREATE SINK s FROM v", "Syntax 1:21 syntax error at end of input: expected WITH (connector = …)");
    check("SELECT emit FROM t emit WHERE emit.format = 1", "query SELECT emit FROM t emit WHERE emit.format = 1");
}

#[test]
fn queries() {
    for sql in [
        "SELECT a::bigint, count(*) FILTER (WHERE b > 1) FROM t GROUP BY 1",
        "SELECT * FROM TUMBLE(t, ts, INTERVAL '1 minute') AS w",
        "SELECT * FROM TABLE(TUMBLE(TABLE(t), DESCRIPTOR(ts), INTERVAL '10' SECOND))",
        "SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) AS n FROM t QUALIFY n <= 3",
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b",
        "SELECT * FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
        "SELECT * FROM a ASOF LEFT JOIN b MATCH_CONDITION ((a.t) >= b.t) ON a.k = b.k ASOF LEFT OUTER JOIN c MATCH_CONDITION (b.t < c.t)",
        "SELECT * FROM a LEFT JOIN LATERAL (SELECT 1) AS x ON true",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY b RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW)",
        "VALUES (1, 'a'), (2, 'b')",
        "SELECT * EXCLUDE (a) FROM t",
        "SELECT 2 ^ 3, a # b, a ~* 'x', j -> 'k' ->> 'l'",
        "SELECT * FROM o FOR SYSTEM_TIME AS OF PROCTIME() AS r",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), ())",
        "SELECT * FROM unnest(ARRAY[1, 2]) AS u(x)",
        "SELECT a FROM t WHERE ts > now() - INTERVAL '1 hour'",
    ] {
        assert!(matches!(parse_one(sql), Ok(Parsed { statement: Statement::Query(_), .. })), "{}", brief(sql));
    }
    // Not of one JOIN the condition and of another the word.
    check(
        "SELECT * FROM a ASOF LEFT JOIN b ON a.k = b.k",
        "Syntax 1:22 syntax error at or near \"LEFT\": expected JOIN",
    );
    // The tokenizer must not read `<-` as an operator.
    check("SELECT a<-1, b=-1", "query SELECT a < -1, b = -1");
    check("TABLE t ORDER BY a LIMIT 2", "query SELECT * FROM t ORDER BY a LIMIT 2");
    check("(TABLE \"T\") UNION ALL TABLE s.u", "query (SELECT * FROM \"T\") UNION ALL SELECT * FROM s.u");
    check(
        "SELECT 1 FROM t EMIT ON WINDOW CLOSE",
        "Unsupported 1:17 EMIT ON WINDOW CLOSE outside a continuous query is not supported",
    );
    check("SELECT 1 FROM t FOR UPDATE", "Unsupported 1:1 FOR UPDATE or FOR SHARE is not supported");
    check("SELECT 1 INTO x FROM t", "Unsupported 1:1 SELECT INTO is not supported");
    check(
        "SELECT * FROM (SELECT * FROM t TABLESAMPLE BERNOULLI (10)) AS s",
        "Unsupported 1:1 TABLESAMPLE is not supported",
    );
    check(
        "SELECT * FROM t WITH (nolock)",
        "Syntax 1:17 syntax error at or near \"WITH\": expected the end of the statement",
    );
}

#[test]
fn table_arguments() {
    use datafusion_sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, FunctionArguments, SetExpr, TableFactor};
    let q = parse_query("SELECT * FROM TABLE(TUMBLE(TABLE s.t, DESCRIPTOR(ts), INTERVAL '1 minute'))").unwrap();
    let SetExpr::Select(s) = q.body.as_ref() else { panic!() };
    let TableFactor::TableFunction { expr: Expr::Function(f), .. } = &s.from[0].relation else { panic!() };
    let FunctionArguments::List(list) = &f.args else { panic!() };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(first)) = &list.args[0] else { panic!() };
    assert_eq!(table_argument(first).unwrap().to_string(), "s.t");
}

#[test]
fn dml() {
    check("INSERT INTO t VALUES (1, 'a')", "insert t [] VALUES (1, 'a')");
    check("INSERT INTO s.t (a, \"B\") SELECT 1, 2", "insert s.t [\"a\", \"B\"] SELECT 1, 2");
    check("INSERT INTO t (SELECT 1)", "insert t [] (SELECT 1)");
    check("INSERT INTO t VALUES (1) RETURNING a, b + 1 c", "insert t [] VALUES (1) returning a, b + 1 AS c");
    check("INSERT INTO t DEFAULT VALUES RETURNING *", "insert t [] default values returning *");
    check(
        "TRUNCATE TABLE a, s.b",
        "Truncate([Name { schema: None, name: \"a\", position: Some((1, 16)) }, Name { schema: Some(\"s\"), name: \"b\", position: Some((1, 19)) }])",
    );
    check("CREATE TABLE t AS SELECT 1 WITH NO DATA", "table t [] SELECT 1 false");
    check("CREATE TABLE t (a, b) AS TABLE u", "table t [\"a\", \"b\"] SELECT * FROM u true");
    check("INSERT INTO t (a, a) VALUES (1, 2)", "InvalidArgument 1:19 column \"a\" specified more than once");
    check("UPDATE t SET a = b + 1, c = 'x' WHERE d = 1 AND e", "update t None a=b + 1,c='x' where d = 1 AND e");
    check("UPDATE t AS x SET a = 1", "update t Some(\"x\") a=1 where ");
    check(
        "UPDATE t x SET a = 1 FROM u, v JOIN w ON true WHERE c RETURNING x.*",
        "update t Some(\"x\") a=1 from u, v JOIN w ON true where c returning x.*",
    );
    check("UPDATE t SET a = 1, a = 2", "InvalidArgument 1:21 multiple assignments to same column \"a\"");
    check("DELETE FROM t WHERE a IN (SELECT 1)", "delete t None where a IN (SELECT 1)");
    check("DELETE FROM t", "delete t None where ");
    check(
        "COPY t (a, b) FROM 'f.csv' WITH (FORMAT csv, HEADER, delim = '|')",
        "copy t [\"a\", \"b\"] f.csv {\"delim\": \"|\", \"format\": \"csv\", \"header\": \"true\"}",
    );
    check("COPY t FROM STDIN", "Unsupported 1:13 COPY FROM STDIN is not supported");
}

#[test]
fn utilities() {
    check("SUBSCRIBE v", "subscribe v true None");
    check("SUBSCRIBE TO s.v NO SNAPSHOT AS OF EPOCH 12", "subscribe s.v false Some(12)");
    check("SUBSCRIBE SELECT a FROM t AS OF EPOCH 3", "subscribe [SELECT a FROM t] true Some(3)");
    check(
        "SUBSCRIBE TO SELECT a FROM t EMIT ON WINDOW CLOSE WITH SNAPSHOT",
        "subscribe [SELECT a FROM t] emit true None",
    );
    check("SUBSCRIBE v NO SNAPSHOT WITH SNAPSHOT", "Syntax 1:25 conflicting or redundant WITH");
    check("EXPLAIN SELECT 1", "explain Stream false SELECT");
    check("EXPLAIN VERBOSE LOGICAL SELECT 1", "explain Logical true SELECT");
    check(
        "EXPLAIN (FRAGMENTS, VERBOSE) CREATE MATERIALIZED VIEW m AS SELECT 1",
        "explain Fragments true CREATE MATERIALIZED VIEW",
    );
    check("EXPLAIN (SELECT 1)", "explain Stream false SELECT");
    check("EXPLAIN ANALYZE SELECT 1", "Unsupported 1:9 EXPLAIN ANALYZE is not supported");
    check("EXPLAIN FAULT SELECT 1", "explain Fault false SELECT");
    check("EXPLAIN FAULT FORMAT JSON SELECT 1", "explain Fault false SELECT json");
    check("EXPLAIN (FAULT, FORMAT text) SELECT 1", "explain Fault false SELECT");
    check("EXPLAIN (FORMAT JSON) SELECT 1", "Unsupported 1:10 EXPLAIN (FORMAT JSON) without FAULT is not supported");
    check("EXPLAIN FLUSH", "Unsupported 1:9 EXPLAIN FLUSH is not supported");
    check("DROP MATERIALIZED VIEW IF EXISTS a, s.b CASCADE", "drop materialized view a,s.b true true");
    check("DROP TABLE t RESTRICT", "drop table t false false");
    check("FLUSH", "Flush");
    check("SHOW MATERIALIZED VIEWS IN x", "ShowObjects { kind: MaterializedViews, schema: Some(\"x\") }");
    check("SHOW ALL", "ShowAll");
    check("SHOW fault.strategy", "ShowVariable(\"fault.strategy\")");
    check("SET search_path TO a, \"B\"", "Set { name: \"search_path\", value: \"a, B\" }");
    check("SET SESSION x.y = -1", "Set { name: \"x.y\", value: \"-1\" }");
    check("SET TIME ZONE 'UTC'", "Set { name: \"timezone\", value: \"UTC\" }");
    check("SET x TO DEFAULT", "Reset(Some(\"x\"))");
    check("RESET ALL", "Reset(None)");
    check("CANCEL JOB 7", "CancelJob(Id(7))");
    assert_eq!(one("SHOW COLUMNS FROM t"), Statement::Describe(Name::bare("t")));
    assert_eq!(one("DESCRIBE TABLE t"), Statement::Describe(Name::bare("t")));
    assert_eq!(
        one("SHOW CREATE MATERIALIZED VIEW m"),
        Statement::ShowCreate { kind: Some(DropKind::MaterializedView), name: Name::bare("m") }
    );
}

#[test]
fn refused_by_name() {
    for (sql, what) in [
        ("CREATE UNIQUE INDEX i ON t (a)", "CREATE UNIQUE INDEX"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'x'", "LANGUAGE plpgsql"),
        ("CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT a FROM t'", "a function's text"),
        ("CREATE FUNCTION f(a int) RETURNS SETOF int LANGUAGE sql AS 'SELECT a'", "RETURNS SETOF"),
        ("DROP FUNCTION f(int)", "the types of arguments"),
        ("CREATE TEMP TABLE t (a int)", "CREATE TEMP TABLE"),
        ("CREATE TABLE t (a int) AS SELECT 1", "AS with types"),
        ("CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)", "identity"),
        ("ALTER MATERIALIZED VIEW m SET PARALLELISM = 2", "ALTER MATERIALIZED VIEW"),
        ("ALTER TABLE t ALTER COLUMN a TYPE text", "ALTER TABLE … ALTER COLUMN"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "ADD PRIMARY KEY"),
        ("ALTER TABLE t ADD COLUMN a int PRIMARY KEY", "a primary key cannot be added"),
        ("ALTER TABLE t DROP a, DROP b", "several actions"),
        ("ALTER VIEW v RENAME COLUMN a TO b", "ALTER VIEW … RENAME COLUMN"),
        ("ALTER SYSTEM SET a = 1", "ALTER SYSTEM"),
        ("COMMENT ON ROLE t IS 'x'", "COMMENT ON ROLE"),
        ("BEGIN", "transactions"),
        ("GRANT SELECT ON t TO x", "GRANT"),
        ("CREATE TABLE t (a int, UNIQUE (a))", "UNIQUE"),
        ("CREATE TABLE t (a int CHECK (a > 0))", "CHECK"),
        ("CREATE TABLE t (a int REFERENCES u (a))", "REFERENCES"),
        ("CREATE TABLE t (a time with time zone)", "time"),
        ("CREATE TABLE t (a serial)", "serial"),
        ("WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x", "INSERT in a query"),
    ] {
        let e = parse(sql).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported, "{sql}: {e}");
        assert!(e.message().contains(what), "{sql}: {e}");
        assert!(e.position().is_some(), "{sql}");
    }
}

#[test]
fn errors_say_where_and_what() {
    check("SELCT 1", "Syntax 1:1 syntax error at or near \"SELCT\": expected a statement (did you mean SELECT?)");
    check("SELECT a, FROM t", "Syntax 1:11 syntax error at or near \"FROM\": expected an expression");
    check("SELECT 1 +", "Syntax 1:11 syntax error at end of input: expected an expression");
    check(
        "SELECT a FROM t WHERE\n  GROUP BY a",
        "Syntax 2:3 syntax error at or near \"GROUP\": expected an expression",
    );
    check(
        "CREATE TABEL t (a int)",
        "Syntax 1:8 syntax error at or near \"TABEL\": expected TABLE, SOURCE, VIEW, MATERIALIZED VIEW, SINK or SCHEMA (did you mean TABLE?)",
    );
    check("CREATE TABLE t (a)", "Syntax 1:18 syntax error at or near \")\": expected a type for column \"a\"");
    check("CREATE TABLE t (a intt)", "NotFound 1:19 type \"intt\" does not exist (did you mean int?)");
    check("CREATE TABLE t (a int, a text)", "InvalidArgument 1:24 column \"a\" specified more than once");
    check("CREATE TABLE t (a int, PRIMARY KEY (b))", "NotFound 1:24 column \"b\" does not exist");
    check(
        "CREATE TABLE t (order int)",
        "Syntax 1:17 syntax error at or near \"order\": expected a column name (order is a reserved word; as a name, write it in double quotes)",
    );
    check(
        "CREATE TABLE t",
        "Syntax 1:15 syntax error at end of input: expected \"(\" and columns (a table needs columns, or WITH (connector = …) to take them from)",
    );
    check("CREATE TABLE t (a int) WITH (x = 1, X = 2)", "InvalidArgument 1:37 option \"x\" specified more than once");
    check("CREATE TABLE t (a numeric(39, 2))", "InvalidArgument 1:19 numeric precision 39 must be between 1 and 38");
    check("DROP TABLE", "Syntax 1:11 syntax error at end of input: expected a table name");
    check("DROP TABLE t x", "Syntax 1:14 syntax error at or near \"x\": expected the end of the statement");
    check("SELECT 'abc", "Syntax 1:8 unterminated quoted string");
    // Positions count from the start of the whole text, in characters.
    let e = parse("SELECT 'é';\n\nSELECT 'ü' FROM;").unwrap_err();
    assert_eq!(e.position(), Some((3, 16)));
    let e = parse(&format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
    let e = parse(&format!("SELECT 1{}", " + 1".repeat(5000))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit);
    // What is let through is parsed, walked and dropped on a small stack.
    for (word, tail) in
        [("SELECT 1", " + 1"), ("SELECT a", " OR b"), ("SELECT 1", " UNION SELECT 1"), ("SELECT a", "::int")]
    {
        assert!(parse(&format!("{word}{}", tail.repeat(990))).is_ok(), "{tail}");
    }
    for deep in ["EXPLAIN ", "int[]", "struct<a int, b "] {
        assert!(parse(&format!("CREATE TABLE t (a {}", deep.repeat(5000))).is_err());
        assert!(parse(&deep.repeat(5000)).is_err());
    }
    assert_eq!(parse(&format!("CREATE TABLE t (a int{})", "[]".repeat(5000))).unwrap_err().kind(), ErrorKind::Limit);
    assert!(parse(&format!("VALUES (1){}", ", (1 + 1)".repeat(5000))).is_ok());
}

#[test]
fn splitting() {
    let parts = |t: &'static str| split(t).unwrap().into_iter().map(|r| &t[r]).collect::<Vec<_>>();
    assert_eq!(
        parts("a; b ;; -- c;\n 'é;' \"x;\" /* ; /* ; */ */ $$;$$ ;\n$q$;$q$ -- end"),
        ["a", "b", "'é;' \"x;\" /* ; /* ; */ */ $$;$$", "$q$;$q$"]
    );
    assert!(parts(" ; -- nothing\n;").is_empty());
    let all = parse("SELECT 1; SHOW ALL").unwrap();
    assert_eq!((all[1].text.as_str(), all[1].range.clone()), ("SHOW ALL", 10..18));
    for (text, complete) in [
        ("", true),
        ("SELECT 1", false),
        ("SELECT 1;", true),
        ("SELECT 1; -- x", true),
        ("SELECT 1; SELECT", false),
        ("SELECT ';", false),
        ("SELECT $$;", false),
        ("SELECT \";", false),
        ("SELECT 1; /* x", false),
        ("FLUSH;\n", true),
    ] {
        assert_eq!(is_complete(text), complete, "{text}");
    }
}

#[test]
fn types_there_and_back() {
    let list = |t| DataType::new_list(t, true);
    for (sql, arrow, shown) in [
        ("bool", DataType::Boolean, "boolean"),
        ("int2", DataType::Int16, "smallint"),
        ("integer", DataType::Int32, "integer"),
        ("int8", DataType::Int64, "bigint"),
        ("numeric", DataType::Decimal128(38, 10), "numeric(38,10)"),
        ("decimal(5)", DataType::Decimal128(5, 0), "numeric(5,0)"),
        ("real", DataType::Float32, "real"),
        ("float", DataType::Float64, "double precision"),
        ("double", DataType::Float64, "double precision"),
        ("varchar(10)", DataType::Utf8, "text"),
        ("bytea", DataType::Binary, "bytea"),
        ("uuid", DataType::FixedSizeBinary(16), "uuid"),
        ("json", DataType::LargeBinary, "jsonb"),
        ("date", DataType::Date32, "date"),
        ("time", DataType::Time64(TimeUnit::Microsecond), "time without time zone"),
        ("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp without time zone"),
        ("timestamptz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "timestamp with time zone"),
        ("interval", DataType::Interval(IntervalUnit::MonthDayNano), "interval"),
        ("int[][]", list(list(DataType::Int32)), "integer[][]"),
        (
            "map<text, int[]>",
            DataType::Map(
                std::sync::Arc::new(arrow::datatypes::Field::new_struct(
                    "entries",
                    vec![
                        arrow::datatypes::Field::new("key", DataType::Utf8, false),
                        arrow::datatypes::Field::new("value", list(DataType::Int32), true),
                    ],
                    false,
                )),
                false,
            ),
            "map<text, integer[]>",
        ),
        (
            "struct<a int, \"B\" text>",
            DataType::Struct(
                vec![
                    arrow::datatypes::Field::new("a", DataType::Int32, true),
                    arrow::datatypes::Field::new("B", DataType::Utf8, true),
                ]
                .into(),
            ),
            "struct<a integer, \"B\" text>",
        ),
    ] {
        let t = table(&format!("CREATE TABLE t (c {sql})"));
        assert_eq!(t.columns[0].data_type, arrow, "{sql}");
        assert_eq!(types::display(&arrow), shown);
        // What is shown reads back as the same type.
        assert_eq!(table(&format!("CREATE TABLE t (c {shown})")).columns[0].data_type, arrow, "{shown}");
    }
}

#[test]
fn round_trips() {
    for sql in ["a + 1", "'x' || \"B\"", "now()", "CAST(NULL AS INT)", "-1.5"] {
        let e = parse_expr(sql).unwrap();
        assert_eq!(parse_expr(&e.to_string()).unwrap(), e);
    }
    for name in ["a", "A b", "order", "1x", "ü", "q\"q", ""] {
        let quoted = quote(name);
        if !name.is_empty() {
            assert_eq!(one(&format!("DESCRIBE {quoted}")), Statement::Describe(Name::bare(name)), "{quoted}");
        }
    }
    assert!(parse_query("FLUSH").is_err() && parse_one("").is_err() && parse_one("FLUSH; FLUSH").is_err());
    let mut sorted = ["b", "a"];
    sorted.sort_unstable();
    assert_eq!(did_you_mean("selec", ["select", "delete"]), Some("select"));
}

#[test]
fn option_values() {
    use super::options::{to_bool, to_duration, to_u64};
    assert!(to_bool("k", "ON").unwrap() && !to_bool("k", "f").unwrap() && to_bool("k", "maybe").is_err());
    assert_eq!(to_u64("k", "1_000").unwrap(), 1000);
    assert!(to_u64("k", "-1").is_err());
    for (text, ms) in [("5 seconds", 5000), ("100ms", 100), ("1h", 3_600_000), ("1.5s", 1500), ("1 day", 86_400_000)] {
        assert_eq!(to_duration("k", text).unwrap().as_millis(), ms, "{text}");
    }
    for bad in ["", "5", "1 month", "x", "-1 s"] {
        assert!(to_duration("k", bad).is_err(), "{bad}");
    }
}
