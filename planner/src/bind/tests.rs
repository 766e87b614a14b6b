//! Binding: names, views, windows as functions and relations, refusals.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};

use super::*;
use crate::testing::{Catalog, batch, lines, parse, refusal, run, stream};

const S: i64 = 1_000_000;

fn bids(times: &[Option<i64>]) -> RecordBatch {
    let n = times.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..n as i64)),
        Arc::new(Int64Array::from(vec![1; n])),
        Arc::new(StringArray::from(vec![""; n])),
        Arc::new(TimestampMicrosecondArray::from(times.to_vec())),
    ];
    batch("bids", columns)
}

/// Seconds of the windows around each time, as `auction start end`.
fn windows(from: &str, times: &[Option<i64>]) -> String {
    let sql = format!(
        "SELECT auction, CAST(arrow_cast(window_start, 'Int64') / 1000 AS BIGINT), arrow_cast(window_end, 'Int64') / 1000 FROM {from}"
    );
    lines(&run(&stream(&sql, 1, false).unwrap(), &bids(times)))
}

#[test]
fn tumbling_windows() {
    let times = [Some(0), Some(9_999_999), Some(10 * S), None, Some(-1), Some(-10 * S), Some(-10 * S - 1)];
    assert_eq!(
        windows("TUMBLE(bids, ts, INTERVAL '10 seconds')", &times),
        "0 0 10000\n1 0 10000\n2 10000 20000\n4 -10000 0\n5 -10000 0\n6 -20000 -10000"
    );
    // The offset moves all windows; only its remainder matters.
    for offset in ["3 seconds", "13 seconds", "-7 seconds"] {
        assert_eq!(
            windows(&format!("TUMBLE(bids, ts, INTERVAL '10 seconds', INTERVAL '{offset}')"), &[Some(0), Some(3 * S)]),
            "0 -7000 3000\n1 3000 13000"
        );
    }
    assert_eq!(windows("TUMBLE(bids, ts, INTERVAL '1 day')", &[Some(S)]), "0 0 86400000");
}

#[test]
fn hopping_windows() {
    // The size is no multiple of the slide: rows are in three or four windows.
    assert_eq!(
        windows("HOP(bids, ts, INTERVAL '3 seconds', INTERVAL '10 seconds')", &[Some(0), None, Some(2 * S)]),
        "0 -9000 1000\n0 -6000 4000\n0 -3000 7000\n0 0 10000\n2 -6000 4000\n2 -3000 7000\n2 0 10000"
    );
    assert_eq!(
        windows("HOP(bids, ts, INTERVAL '5 seconds', INTERVAL '10 seconds')", &[Some(-1), Some(5 * S)]),
        "0 -10000 0\n0 -5000 5000\n1 0 10000\n1 5000 15000"
    );
    // Gaps between windows: some rows are in none.
    assert_eq!(
        windows("HOP(bids, ts, INTERVAL '10 seconds', INTERVAL '2 seconds')", &[Some(S), Some(2 * S), Some(-9 * S)]),
        "0 0 2000\n2 -10000 -8000"
    );
}

#[test]
fn windows_in_our_dialect() {
    for from in [
        "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10 seconds'))",
        "TUMBLE(bids, ts, INTERVAL '10' SECOND)",
        "TUMBLE(public.bids, bids.ts, INTERVAL '10 seconds') AS w",
        "HOP((SELECT * FROM bids), ts, INTERVAL '10 s', INTERVAL '10 s')",
    ] {
        let query = crate::sql::parse_query(&format!("SELECT window_start FROM {from}")).unwrap();
        let mode = BindMode::Continuous { errors: ErrorCounter::ignore() };
        let plan = crate::rules::optimize_continuous(bind_query(&Catalog, &query, &mode).unwrap()).unwrap();
        let target = crate::lower::Target::Subscribe;
        let options = crate::lower::LowerOptions { parallelism: 1, emit_on_window_close: false, target };
        let node = crate::lower::lower(&plan, &options).unwrap();
        assert_eq!(lines(&run(&node, &bids(&[Some(12 * S)]))), "1970-01-01T00:00:10", "{from}");
    }
}

#[test]
fn windows_over_anything() {
    for from in [
        "TUMBLE((SELECT * FROM bids WHERE price > 0), ts, INTERVAL '10 seconds')",
        "TABLE(TUMBLE(bids, DESCRIPTOR(ts), INTERVAL '10 seconds'))",
    ] {
        assert_eq!(windows(from, &[Some(S)]), "0 0 10000", "{from}");
    }
    let sql = "WITH b AS (SELECT auction, ts AS at FROM bids)
               SELECT w.auction, w.window_end FROM TUMBLE(b, at, INTERVAL '1 second') AS w";
    assert_eq!(lines(&run(&stream(sql, 1, false).unwrap(), &bids(&[Some(1)]))), "0 1970-01-01T00:00:01");
}

#[track_caller]
fn refused(sql: &str, expected: &str) {
    assert_eq!(refusal(sql, 1, false), expected, "{sql}");
}

#[test]
fn wrong_windows() {
    refused(
        "SELECT * FROM CUMULATE(bids, ts, INTERVAL '7 seconds', INTERVAL '1 minute')",
        "InvalidArgument: the size of CUMULATE must be a multiple of its step (1:15) hint: the step comes before the size: CUMULATE(t, ts, step, size)",
    );
    refused(
        "SELECT * FROM SESSION(bids, ts)",
        "InvalidArgument: wrong arguments of SESSION (1:15) hint: write SESSION(table [PARTITION BY columns], time column, INTERVAL 'gap')",
    );
    refused(
        "SELECT * FROM TUMBLE(bids, ts)",
        "InvalidArgument: wrong arguments of TUMBLE (1:15) hint: write TUMBLE(table, time column, INTERVAL 'size' [, INTERVAL 'offset'])",
    );
    refused(
        "SELECT * FROM TUMBLE(bids, price, INTERVAL '1 second')",
        "Type: TUMBLE needs a timestamp column; \"price\" has type Int64 (1:28) hint: cast it to timestamp in a subquery",
    );
    refused(
        "SELECT * FROM TUMBLE(bids, ts, INTERVAL '1 month')",
        "InvalidArgument: a window's size cannot be in months or years: their length varies (1:41)",
    );
    refused(
        "SELECT * FROM TUMBLE(bids, ts, INTERVAL '0 seconds')",
        "InvalidArgument: a window's size must be positive (1:41)",
    );
    refused(
        "SELECT * FROM HOP(bids, ts, INTERVAL '1 millisecond', INTERVAL '1 day')",
        "InvalidArgument: HOP would put each row into 86400000 windows; at most 10000 are allowed (1:15) hint: the slide comes before the size: HOP(t, ts, slide, size)",
    );
    refused(
        "SELECT * FROM TUMBLE(bidz, ts, INTERVAL '1 second')",
        "NotFound: relation \"bidz\" does not exist (1:22) hint: did you mean \"bids\"?",
    );
}

#[test]
fn names() {
    refused("SELECT * FROM bid", "NotFound: relation \"bid\" does not exist (1:15) hint: did you mean \"bids\"?");
    refused("SELECT idd FROM t", "NotFound: column \"idd\" does not exist (1:8) hint: did you mean \"id\"?");
    refused("SELECT t.vv\nFROM t", "NotFound: column \"t.vv\" does not exist (1:8)");
    refused(
        "SELECT id FROM t JOIN u ON t.id = u.id",
        "Type: column reference \"id\" is ambiguous (1:8) hint: put the table's name or alias before it",
    );
    refused(
        "SELECT v::text, v::double FROM t",
        "Type: two columns of a SELECT list have the same name hint: give them different names with AS",
    );
    refused("SELECT uper(s) FROM t", "NotFound: function uper does not exist (1:8) hint: did you mean upper?");
    refused("SELECT k FROM broken", "NotFound: view \"broken\": column \"nope\" does not exist (1:15)");
    refused("SELECT k FROM cycle", "InvalidArgument: view \"cycle\" is defined by itself (1:15)");
}

#[test]
fn what_would_be_ignored_is_refused() {
    for (sql, expected) in [
        ("SELECT id FROM t TABLESAMPLE BERNOULLI (10)", "Unsupported: TABLESAMPLE is not supported"),
        ("SELECT id FROM t FOR UPDATE", "Unsupported: FOR UPDATE or FOR SHARE is not supported"),
        (
            "SELECT * FROM unnest(ARRAY[1], ARRAY[2]) WITH ORDINALITY",
            "Unsupported: WITH ORDINALITY of several arrays is not supported",
        ),
        ("SELECT id FROM t FETCH FIRST 3 ROWS ONLY", "Unsupported: FETCH is not supported"),
        ("SELECT id INTO x FROM t", "Unsupported: SELECT INTO is not supported"),
        (
            "SELECT x.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.id = t.id HAVING count(*) = 0) x",
            "Unsupported: HAVING in a LATERAL subquery is not supported",
        ),
    ] {
        for mode in [BindMode::AdHoc, BindMode::Continuous { errors: ErrorCounter::ignore() }] {
            let error = bind_query(&Catalog, &parse(sql), &mode).unwrap_err();
            assert_eq!(format!("{:?}: {}", error.kind(), error.message()), expected, "{sql}");
        }
    }
}

#[test]
fn what_has_no_incremental_form_is_refused() {
    let clock = "Unsupported: now() cannot be used in a continuous query: its value changes with time hint: WHERE may \
                 compare a time with now(), as in ts > now() - INTERVAL '1 hour'"
        .to_owned();
    for (sql, expected) in [
        ("SELECT now()", clock.clone()),
        ("SELECT id FROM bids, t WHERE ts > current_timestamp OR id > 0", clock.clone()),
        ("SELECT id FROM bids, t WHERE ts > now() - INTERVAL '1 month'", clock),
        (
            "SELECT id FROM bids, t WHERE ts > current_date",
            "Unsupported: current_date() cannot be used in a continuous query: its value changes with time (1:35) hint: \
             WHERE may compare a time with now(), as in ts > now() - INTERVAL '1 hour'"
                .into(),
        ),
        (
            "SELECT random()",
            "Unsupported: random() cannot be used in a continuous query: its value differs from call to call (1:8)"
                .into(),
        ),
    ] {
        refused(sql, &expected);
    }
    // Ad hoc, all of them are fine to bind.
    for sql in ["SELECT now(), random()", "SELECT DISTINCT ON (k) k, v FROM t"] {
        bind_query(&Catalog, &parse(sql), &BindMode::AdHoc).unwrap();
    }
}

#[test]
fn scans_can_be_rewritten() {
    let plan =
        crate::testing::bind("SELECT id, w FROM t JOIN v ON t.k = v.k WHERE t.v > (SELECT max(n) FROM mv)").unwrap();
    let names: Vec<String> = relations_of(&plan).unwrap().iter().map(|r| r.display_name()).collect();
    assert_eq!(names, ["mv", "t"]);
    let mut seen = 0;
    let rewritten = rewrite_scans(plan, |r| {
        seen += 1;
        Ok(Arc::new(RelationSource::new(Arc::clone(r))) as Arc<dyn TableSource>)
    })
    .unwrap();
    assert_eq!(seen, 3);
    assert_eq!(relations_of(&rewritten).unwrap().len(), 2);
}

#[test]
fn types_of_sql() {
    let plan = crate::testing::bind(
        "SELECT CAST(s AS TIMESTAMP) a, CAST(s AS TIMESTAMPTZ) b, CAST(s AS NUMERIC) c,
         CAST(s AS NUMERIC(5,1)) d, CAST(s AS TEXT) e, CAST(s AS FLOAT) f FROM t",
    )
    .unwrap();
    let types: Vec<String> = plan.schema().fields().iter().map(|f| f.data_type().to_string()).collect();
    assert_eq!(
        types,
        ["Timestamp(µs)", "Timestamp(µs, \"UTC\")", "Decimal128(38, 10)", "Decimal128(5, 1)", "Utf8", "Float64"]
    );
    let wide = crate::testing::bind("SELECT CAST(s AS NUMERIC(39)) FROM t").unwrap_err();
    assert!(wide.message().contains("precision 39"), "{wide}");
}

#[test]
fn limits_are_made_deterministic() {
    let order = |sql: &str| {
        let text = crate::explain::logical(&crate::testing::bind(sql).unwrap());
        text.lines()
            .filter(|l| l.contains("Sort") || l.contains("Limit"))
            .map(|l| l.trim().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(order("SELECT id FROM t ORDER BY id"), Vec::<String>::new());
    assert_eq!(
        order("SELECT id, k FROM t ORDER BY k DESC LIMIT 2"),
        ["Limit: skip=0, fetch=2", "Sort: t.k DESC NULLS FIRST, t.id ASC NULLS LAST"]
    );
    assert_eq!(order("SELECT id FROM t LIMIT 2"), ["Limit: skip=0, fetch=2", "Sort: t.id ASC NULLS LAST"]);
    // The order of a subquery reaches the limit around it, and is dropped where none does.
    assert_eq!(
        order("SELECT id FROM (SELECT id, v FROM t ORDER BY v) x LIMIT 2"),
        ["Limit: skip=0, fetch=2", "Sort: t.v ASC NULLS LAST, t.id ASC NULLS LAST"]
    );
    assert_eq!(order("SELECT count(*) FROM (SELECT id FROM t ORDER BY v) x"), Vec::<String>::new());
}

#[test]
fn functions_keep_to_our_types() {
    // Operators know text as Utf8 and timestamps in microseconds.
    for (e, expected) in [
        ("concat(s, 'x')", "Utf8"),
        ("substr(s, 2)", "Utf8"),
        ("split_part(s, ',', 1)", "Utf8"),
        ("regexp_replace(s, 'a', 'b')", "Utf8"),
        ("CASE WHEN k > 1 THEN s ELSE 'y' END", "Utf8"),
        ("string_to_array(s, ',')", "List(Utf8)"),
        ("to_timestamp(s)", "Timestamp(µs)"),
        ("from_unixtime(v)", "Timestamp(µs)"),
        ("TIMESTAMP '2020-01-01' + INTERVAL '1 day'", "Timestamp(µs)"),
    ] {
        let plan = crate::testing::bind(&format!("SELECT {e} AS x FROM t")).unwrap();
        let field = plan.schema().field(0);
        assert_eq!((field.name().as_str(), field.data_type().to_string().as_str()), ("x", expected), "{e}");
    }
}
