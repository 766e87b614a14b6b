//! Guards over batches: what fails is NULL and counted, what does not is untouched.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray};

use crate::bind::{BindMode, bind_query};
use crate::lower::{LowerOptions, Target, lower};
use crate::testing::{Catalog, batch, counting, lines, parse, run};

fn t(v: &[Option<i64>], k: &[Option<i32>], s: &[Option<&str>]) -> arrow::array::RecordBatch {
    let ids: Vec<i64> = (0..v.len() as i64).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids)),
        Arc::new(Int32Array::from(k.to_vec())),
        Arc::new(Int64Array::from(v.to_vec())),
        Arc::new(StringArray::from(s.to_vec())),
    ];
    batch("t", columns)
}

/// Runs a SELECT over `rows`, optimized and not; gives the rows and what was counted.
#[track_caller]
fn check(sql: &str, rows: &arrow::array::RecordBatch, expected: &str, counted: &[(&str, u64)]) {
    for optimize in [false, true] {
        let (mode, seen) = counting();
        let mut plan = bind_query(&Catalog, &parse(sql), &mode).unwrap();
        if optimize {
            plan = crate::rules::optimize_continuous(plan).unwrap();
        }
        let target = Target::Subscribe;
        let node = lower(&plan, &LowerOptions { parallelism: 1, emit_on_window_close: false, target }).unwrap();
        seen.lock().unwrap().clear();
        assert_eq!(lines(&run(&node, rows)), expected, "{sql}\n{}", node.explain());
        let seen: Vec<(String, u64)> = seen.lock().unwrap().iter().map(|(_, n, s)| (s.clone(), *n)).collect();
        let counted: Vec<(String, u64)> = counted.iter().map(|(s, n)| ((*s).to_string(), *n)).collect();
        assert_eq!(seen, counted, "{sql} optimized={optimize}");
    }
}

#[test]
fn division() {
    let rows =
        t(&[Some(7), Some(8), None, Some(i64::MIN), Some(9)], &[Some(2), Some(0), Some(0), Some(-1), None], &[None; 5]);
    check("SELECT v / k FROM t", &rows, "3\n-\n-\n-\n-", &[("division by zero", 2)]);
    check("SELECT v / 2 FROM t", &rows, "3\n4\n-\n-4611686018427387904\n4", &[]);
    check("SELECT 10 % k FROM t", &rows, "0\n-\n-\n0\n-", &[("division by zero", 2)]);
    // Floats have their own answer.
    check("SELECT CAST(k AS DOUBLE) / 0.0 FROM t", &rows, "inf\nNaN\nNaN\n-inf\n-", &[]);
}

#[test]
fn casts() {
    let rows = t(&[Some(1), Some(1 << 40), None], &[None; 3], &[Some("12"), Some("x"), None]);
    check("SELECT CAST(s AS INT) FROM t", &rows, "12\n-\n-", &[("cannot cast value \"x\" of type text to integer", 1)]);
    check(
        "SELECT CAST(v AS INT) FROM t",
        &rows,
        "1\n-\n-",
        &[("cannot cast value \"1099511627776\" of type bigint to integer", 1)],
    );
    // Comparison brings a cast with it.
    check(
        "SELECT id FROM t WHERE CAST(s AS BIGINT) + 1 > 5",
        &rows,
        "0",
        &[("cannot cast value \"x\" of type text to bigint", 1)],
    );
    check(
        "SELECT CAST(v AS TEXT) a, v::double b, s::text c FROM t",
        &rows,
        "1 1.0 12\n1099511627776 1099511627776.0 x\n- - -",
        &[],
    );
    // The user asked for NULL: nothing is counted.
    check("SELECT TRY_CAST(s AS INT) FROM t", &rows, "12\n-\n-", &[]);
}

#[test]
fn failing_functions_cost_only_their_rows() {
    let rows = t(
        &[Some(1), Some(-1), Some(2), Some(-5), None],
        &[None; 5],
        &[Some("abc"), Some("abc"), Some("xyz"), Some("xyz"), Some("abc")],
    );
    check("SELECT substr(s, 1, v) FROM t", &rows, "a\n-\nxy\n-\n-", &[("negative count not allowed: -1", 2)]);
    check("SELECT upper(s), coalesce(v, 0) FROM t", &rows, "ABC 1\nABC -1\nXYZ 2\nXYZ -5\nABC 0", &[]);
}

#[test]
fn branches_not_taken_are_not_counted() {
    let rows = t(&[Some(4), Some(5)], &[Some(0), Some(2)], &[None; 2]);
    check("SELECT CASE WHEN k <> 0 THEN v / k ELSE -1 END FROM t", &rows, "-1\n2", &[]);
    check("SELECT coalesce(v, v / k) FROM t", &rows, "4\n5", &[]);
}

#[test]
fn decimals() {
    let big =
        Decimal128Array::from(vec![Some(9_999_999_999), Some(150), None]).with_precision_and_scale(10, 2).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![0, 1, 2])),
        Arc::new(Int64Array::from(vec![0, 2, 0])),
        Arc::new(big),
        Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0])),
    ];
    let rows = batch("u", columns);
    check("SELECT d / CAST(k AS DECIMAL(5, 0)) FROM u", &rows, "-\n0.750000\n-", &[("division by zero", 1)]);
    check(
        "SELECT CAST(d AS DECIMAL(4, 2)) FROM u",
        &rows,
        "-\n1.50\n-",
        &[("cannot cast value \"99999999.99\" of type numeric(10,2) to numeric(4,2)", 1)],
    );
}

#[test]
fn failing_constants_are_refused() {
    for (sql, message) in [
        ("SELECT 1 / 0", "division by zero"),
        ("SELECT id FROM t WHERE v > CAST('x' AS INT)", "cannot cast string 'x' to value of integer type"),
    ] {
        let (mode, _) = counting();
        let error = bind_query(&Catalog, &parse(sql), &mode).unwrap_err();
        assert_eq!(error.message(), message);
    }
    // Ad hoc they fail when they are run.
    bind_query(&Catalog, &parse("SELECT 1 / 0"), &BindMode::AdHoc).unwrap();
}

#[test]
fn a_guard_inside_aggregates_and_subqueries() {
    let (mode, _) = counting();
    let sql = "SELECT k, sum(v / k) FROM t WHERE v > (SELECT max(CAST(s AS INT)) FROM t) GROUP BY k";
    let plan = bind_query(&Catalog, &parse(sql), &mode).unwrap();
    let text = crate::explain::logical(&plan);
    assert!(text.contains("try[$0 / $1]"), "{text}");
    assert!(text.contains("try[TRY_CAST($0 AS Int32)]"), "{text}");
}
