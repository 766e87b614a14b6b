//! SQL to stream plans, compared as EXPLAIN text, and refusals by name.
#![allow(clippy::unwrap_used)]

use spate_engine::plan::{Distribution, OpSpec, StreamNode};

use crate::fragment::cut;
use crate::testing::{check_text, refusal, stream};

/// The plan for so many tasks.
#[track_caller]
fn plan(sql: &str, parallelism: usize, expected: &str) {
    check_text(&stream(sql, parallelism, false).unwrap().explain(), expected);
}

/// The plan with EMIT ON WINDOW CLOSE, for two tasks.
#[track_caller]
fn on_close(sql: &str, expected: &str) {
    check_text(&stream(sql, 2, true).unwrap().explain(), expected);
}

/// The fragments for two tasks.
#[track_caller]
fn fragments(sql: &str, expected: &str) {
    check_text(&cut(stream(sql, 2, false).unwrap(), 2).explain(), expected);
}

#[test]
fn select_where() {
    plan(
        "SELECT id, v FROM t WHERE v > 1",
        2,
        r"
        Materialize out [changes, key=[id@0], any]
          Filter v@1 > 1 [changes, key=[id@0], any]
            Scan t columns=[id, v] [changes, key=[id@0], any]
        ",
    );
}

#[test]
fn aggregate_with_filter_and_having() {
    plan(
        "SELECT k, count(*), sum(v), avg(v), min(s), count(DISTINCT v) FILTER (WHERE v > 3) FROM t GROUP BY k HAVING count(*) > 1",
        2,
        r"
        Materialize out [changes, key=[k@0], hash[k@0]]
          Filter count(Int64(1))@1 > 1 [changes, key=[k@0], hash[k@0]]
            Aggregate group=[t.k@0] calls=[count(*), sum(t.v@1), avg(t.v@2), min(t.s@3), count(distinct t.v@1) filter t.v > 3@4] [changes, key=[k@0], hash[k@0]]
              Exchange hash[t.k@0] [changes, hash[t.k@0]]
                Project k@0 AS t.k, v@1 AS t.v, CAST(v@1 AS Float64) AS t.v, s@2 AS t.s, v@1 > 3 AS t.v > 3 [changes, any]
                  Scan t columns=[k, v, s] [changes, any]
        ",
    );
}

#[test]
fn global_aggregate() {
    fragments(
        "SELECT count(*), sum(price) FROM bids WHERE note = 'x'",
        r"
        Fragment 0 tasks=2 to=1 input=0 single
          Aggregate partial group=[] calls=[count(*), sum(price@0)] [append-only, any]
            Project price@0 [append-only, any]
              Filter note@1 = x [append-only, any]
                Project price@0, note@1 [append-only, any]
                  Source bids columns=[price, note, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
        Fragment 1 tasks=1 from=[0]
          Materialize out [changes, key=[], stays=[], rising=[count@0], single]
            Aggregate final group=[] calls=[count(*), sum(price@0)] [changes, key=[], stays=[], rising=[count@0], single]
              Exchange single [append-only, single]
        ",
    );
}

#[test]
fn count_without_columns() {
    plan(
        "SELECT count(*) FROM t",
        1,
        r"
        Materialize out [changes, key=[], single]
          Aggregate group=[] calls=[count(*)] [changes, key=[], single]
            Scan t columns=[id] [changes, key=[id@0], single]
        ",
    );
}

#[test]
fn tumble_on_close() {
    on_close(
        "SELECT auction, window_start, window_end, count(*) AS n FROM TUMBLE(bids, ts, INTERVAL '10 seconds') GROUP BY auction, window_start, window_end HAVING count(*) > 1",
        r"
        Materialize out [append-only, key=[auction@0, window_start@1, window_end@2], watermark=window_start@1 (start of 10 s), watermark=window_end@2 (end), hash[auction@0, window_start@1, window_end@2]]
          Filter count(Int64(1))@3 > 1 [append-only, key=[auction@0, window_start@1, window_end@2], watermark=window_start@1 (start of 10 s), watermark=window_end@2 (end), hash[auction@0, window_start@1, window_end@2]]
            Aggregate group=[auction@0, window_start@1, window_end@2] calls=[count(*)] window=window_end@2 emit=on-close [append-only, key=[auction@0, window_start@1, window_end@2], watermark=window_start@1 (start of 10 s), watermark=window_end@2 (end), hash[auction@0, window_start@1, window_end@2]]
              Exchange hash[auction@0, window_start@1, window_end@2] [append-only, watermark=window_start@1 (start of 10 s), watermark=window_end@2 (end), hash[auction@0, window_start@1, window_end@2]]
                Project auction@1, __common_expr_1@0 AS window_start, window_end_of(__common_expr_1@0, 10000000) AS window_end [append-only, watermark=window_start@1 (start of 10 s), watermark=window_end@2 (end), any]
                  Project tumble_start(ts@1, 10000000, 0) AS __common_expr_1, auction@0 [append-only, watermark=__common_expr_1@0 (start of 10 s), any]
                    Filter ts@1 IS NOT NULL [append-only, watermark=ts@1 (time), any]
                      Source bids columns=[auction, ts] watermark=ts@1 - 5 s [append-only, watermark=ts@1 (time), any]
        ",
    );
}

#[test]
fn hop() {
    plan(
        "SELECT auction, window_end, max(price) FROM HOP(bids, ts, INTERVAL '3 seconds', INTERVAL '10 seconds') h GROUP BY auction, window_end",
        2,
        r"
        Materialize out [changes, key=[auction@0, window_end@1], watermark=window_end@1 (end), stays=[auction@0, window_end@1], rising=[max@2], hash[auction@0, window_end@1]]
          Aggregate group=[auction@0, window_end@2] calls=[max(price@1)] window=window_end@1 [changes, key=[auction@0, window_end@1], watermark=window_end@1 (end), stays=[auction@0, window_end@1], rising=[max@2], hash[auction@0, window_end@1]]
            Exchange hash[auction@0, window_end@2] [append-only, watermark=window_end@2 (end), hash[auction@0, window_end@2]]
              Project auction@0, price@1, window_end_of(window_start@2, 10000000) AS window_end [append-only, watermark=window_end@2 (end), any]
                Unnest [window_start@2] [append-only, watermark=window_start@2 (start of 10 s), any]
                  Project auction@0, price@1, hop_starts(ts@2, 3000000, 10000000, 0) AS window_start [append-only, any]
                    Filter ts@2 IS NOT NULL [append-only, watermark=ts@2 (time), any]
                      Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
        ",
    );
}

#[test]
fn aggregate_of_window_aggregate() {
    plan(
        "SELECT window_end, max(n) FROM (SELECT auction, window_end, count(*) AS n FROM TUMBLE(bids, ts, INTERVAL '10 seconds') GROUP BY auction, window_end) x GROUP BY window_end",
        2,
        r"
        Materialize out [changes, key=[window_end@0], stays=[window_end@0], rising=[max@1], hash[window_end@0]]
          Aggregate group=[window_end@0] calls=[max(n@1) ever] [changes, key=[window_end@0], stays=[window_end@0], rising=[max@1], hash[window_end@0]]
            Exchange hash[window_end@0] [changes, watermark=window_end@0 (end), stays=[window_end@0], rising=[n@1], hash[window_end@0]]
              Project window_end@1, count(Int64(1))@2 AS n [changes, watermark=window_end@0 (end), stays=[window_end@0], rising=[n@1], any]
                Aggregate group=[auction@0, window_end@1] calls=[count(*)] window=window_end@1 [changes, key=[auction@0, window_end@1], watermark=window_end@1 (end), stays=[auction@0, window_end@1], rising=[count(Int64(1))@2], hash[auction@0, window_end@1]]
                  Exchange hash[auction@0, window_end@1] [append-only, watermark=window_end@1 (end), hash[auction@0, window_end@1]]
                    Project auction@0, window_end_of(tumble_start(ts@1, 10000000, 0), 10000000) AS window_end [append-only, watermark=window_end@1 (end), any]
                      Filter ts@1 IS NOT NULL [append-only, watermark=ts@1 (time), any]
                        Source bids columns=[auction, ts] watermark=ts@1 - 5 s [append-only, watermark=ts@1 (time), any]
        ",
    );
}

#[test]
fn join_with_computed_key_and_filter() {
    fragments(
        "SELECT t.id, u.d FROM t JOIN u ON t.k = u.k AND t.v > u.id",
        r"
        Fragment 0 tasks=2 to=2 input=0 hash[CAST(k@1 AS Int64)@3]
          Project id@0, k@1, v@2, CAST(k@1 AS Int64) AS CAST(k@1 AS Int64) [changes, key=[id@0], any]
            Scan t columns=[id, k, v] [changes, key=[id@0], any]
        Fragment 1 tasks=2 to=2 input=1 hash[k@1]
          Scan u columns=[id, k, d] [changes, any]
        Fragment 2 tasks=2 from=[0, 1]
          Materialize out [changes, any]
            Project id@0, d@6 [changes, any]
              Join inner on=[CAST(k@1 AS Int64)@3 = k@1] filter=v@2 > id@4 [changes, hash[CAST(k@1 AS Int64)@3]]
                Exchange hash[CAST(k@1 AS Int64)@3] [changes, key=[id@0], hash[CAST(k@1 AS Int64)@3]]
                Exchange hash[k@1] [changes, hash[k@1]]
        ",
    );
}

#[test]
fn left_join_keeps_the_left_key() {
    plan(
        "SELECT t.id, mv.n FROM t LEFT JOIN mv ON t.v = mv.k",
        1,
        r"
        Materialize out [changes, key=[id@0], single]
          Project id@0, n@3 [changes, key=[id@0], single]
            Join left on=[v@1 = k@0] [changes, key=[id@0], single]
              Scan t columns=[id, v] [changes, key=[id@0], single]
              Scan mv columns=[k, n] [changes, key=[k@0], single]
        ",
    );
}

#[test]
fn semi_and_anti_joins_have_the_left_key() {
    plan(
        "SELECT id FROM t WHERE v IN (SELECT n FROM mv) AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.id AND u.f > t.v)",
        2,
        r"
        Materialize out [changes, key=[id@0], hash[id@0]]
          Project id@0 [changes, key=[id@0], hash[id@0]]
            Join anti on=[id@0 = __sq2_1@1] filter=__sq2_0@2 > CAST(v@1 AS Float64) [changes, key=[id@0], hash[id@0]]
              Exchange hash[id@0] [changes, key=[id@0], hash[id@0]]
                Join semi on=[v@1 = __sq1_0@0] [changes, key=[id@0], hash[v@1]]
                  Exchange hash[v@1] [changes, key=[id@0], hash[v@1]]
                    Scan t columns=[id, v] [changes, key=[id@0], any]
                  Exchange hash[__sq1_0@0] [changes, hash[__sq1_0@0]]
                    Scan mv columns=[__sq1_0] [changes, any]
              Exchange hash[__sq2_1@1] [changes, hash[__sq2_1@1]]
                Project f@1 AS __sq2_0, k@0 AS __sq2_1 [changes, any]
                  Scan u columns=[k, f] [changes, any]
        ",
    );
    plan(
        "SELECT auction FROM bids b WHERE EXISTS (SELECT 1 FROM bids c WHERE c.ts = b.ts)",
        1,
        r"
        Materialize out [append-only, single]
          Project auction@0 [append-only, single]
            Join semi on=[ts@1 = __sq1_0@0] free=ts@1 < watermark free=__sq1_0@0 < watermark [append-only, watermark=ts@1 (time), single]
              Exchange single [append-only, watermark=ts@1 (time), single]
                Source bids columns=[auction, ts] watermark=ts@1 - 5 s [append-only, watermark=ts@1 (time), single]
              Project ts@1 AS __sq1_0 [append-only, watermark=__sq1_0@0 (time), single]
                Exchange single [append-only, watermark=ts@1 (time), single]
                  Source bids columns=[auction, ts] watermark=ts@1 - 5 s [append-only, watermark=ts@1 (time), single]
        ",
    );
    plan(
        "SELECT id, EXISTS (SELECT 1 FROM mv WHERE mv.n = t.v) AS e FROM t",
        2,
        r"
        Materialize out [changes, key=[id@0], any]
          Project id@0, mark@2 AS e [changes, key=[id@0], any]
            Join mark on=[v@1 = __sq1_0@0] [changes, key=[id@0], hash[v@1]]
              Exchange hash[v@1] [changes, key=[id@0], hash[v@1]]
                Scan t columns=[id, v] [changes, key=[id@0], any]
              Exchange hash[__sq1_0@0] [changes, hash[__sq1_0@0]]
                Scan mv columns=[__sq1_0] [changes, any]
        ",
    );
}

#[test]
fn copies_of_rows_are_weights() {
    plan(
        "SELECT k FROM u EXCEPT ALL SELECT n FROM mv",
        2,
        r"
        Materialize out [changes, hash[k@0]]
          Project c0@0 AS k [changes, hash[k@0]]
            Repeat __n@1 [changes, hash[c0@0]]
              Project c0@0, __in_left@1 - __in_right@2 AS __n [changes, key=[c0@0], hash[c0@0]]
                Aggregate group=[c0@0] calls=[sum(__in_left@1), sum(__in_right@2)] [changes, key=[c0@0], hash[c0@0]]
                  Exchange hash[c0@0] [changes, hash[c0@0]]
                    Union [changes, any]
                      Project k@0 AS c0, 1 AS __in_left, 0 AS __in_right [changes, any]
                        Scan u columns=[k] [changes, any]
                      Project n@0 AS c0, 0 AS __in_left, 1 AS __in_right [changes, any]
                        Scan mv columns=[n] [changes, any]
        ",
    );
}

#[test]
fn join_of_two_keys() {
    plan(
        "SELECT t.id, mv.k, mv.n FROM t JOIN mv ON t.v = mv.n",
        1,
        r"
        Materialize out [changes, key=[id@0, k@1], single]
          Project id@0, k@2, n@3 [changes, key=[id@0, k@1], single]
            Join inner on=[v@1 = n@1] [changes, key=[id@0, k@2], single]
              Scan t columns=[id, v] [changes, key=[id@0], single]
              Scan mv columns=[k, n] [changes, key=[k@0], single]
        ",
    );
}

#[test]
fn full_join() {
    plan(
        "SELECT t.id, mv.k FROM t FULL JOIN mv ON t.v = mv.n",
        2,
        r"
        Materialize out [changes, key=[id@0, k@1], any]
          Project id@0, k@2 [changes, key=[id@0, k@1], any]
            Join full on=[v@1 = n@1] [changes, key=[id@0, k@2], any]
              Exchange hash[v@1] [changes, key=[id@0], hash[v@1]]
                Scan t columns=[id, v] [changes, key=[id@0], any]
              Exchange hash[n@1] [changes, key=[k@0], hash[n@1]]
                Scan mv columns=[k, n] [changes, key=[k@0], any]
        ",
    );
}

#[test]
fn cross_join() {
    plan(
        "SELECT t.id, u.id AS uid FROM t CROSS JOIN u",
        2,
        r"
        Materialize out [changes, single]
          Join inner on=[] [changes, single]
            Exchange single [changes, key=[id@0], single]
              Scan t columns=[id] [changes, key=[id@0], any]
            Exchange single [changes, single]
              Scan u columns=[id] [changes, any]
        ",
    );
}

#[test]
fn null_safe_join() {
    plan(
        "SELECT t.id FROM t JOIN mv ON t.v IS NOT DISTINCT FROM mv.k",
        1,
        r"
        Materialize out [changes, key=[id@0], single]
          Project id@0 [changes, key=[id@0], single]
            Join inner on=[v@1 is not distinct from k@0] [changes, key=[id@0], single]
              Scan t columns=[id, v] [changes, key=[id@0], single]
              Scan mv columns=[k] [changes, key=[k@0], single]
        ",
    );
}

#[test]
fn join_of_sources_loses_the_watermark() {
    plan(
        "SELECT a.ts, b.price FROM bids a JOIN bids b ON a.auction = b.auction",
        1,
        r"
        Materialize out [append-only, single]
          Project ts@1, price@3 [append-only, single]
            Join inner on=[auction@0 = auction@0] [append-only, single]
              Project auction@0, ts@2 [append-only, watermark=ts@1 (time), single]
                Exchange single [append-only, watermark=ts@2 (time), single]
                  Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), single]
              Project auction@0, price@1 [append-only, single]
                Exchange single [append-only, watermark=ts@2 (time), single]
                  Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), single]
        ",
    );
}

#[test]
fn join_on_windows_keeps_the_watermark() {
    plan(
        "SELECT a.auction, b.price, a.window_end FROM TUMBLE(bids, ts, INTERVAL '1 minute') a JOIN TUMBLE(bids, ts, INTERVAL '1 minute') b ON a.auction = b.auction AND a.window_end = b.window_end",
        1,
        r"
        Materialize out [append-only, watermark=window_end@2 (end), single]
          Project auction@0, price@3, window_end@1 [append-only, watermark=window_end@2 (end), single]
            Join inner on=[auction@0 = auction@0, window_end@1 = window_end@2] free=window_end@1 < watermark free=window_end@2 < watermark [append-only, watermark=window_end@1 (end), watermark=window_end@4 (end), single]
              Project auction@0, window_end_of(tumble_start(ts@1, 60000000, 0), 60000000) AS window_end [append-only, watermark=window_end@1 (end), single]
                Filter ts@1 IS NOT NULL [append-only, watermark=ts@1 (time), single]
                  Project auction@0, ts@2 [append-only, watermark=ts@1 (time), single]
                    Exchange single [append-only, watermark=ts@2 (time), single]
                      Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), single]
              Project auction@0, price@1, window_end_of(tumble_start(ts@2, 60000000, 0), 60000000) AS window_end [append-only, watermark=window_end@2 (end), single]
                Filter ts@2 IS NOT NULL [append-only, watermark=ts@2 (time), single]
                  Exchange single [append-only, watermark=ts@2 (time), single]
                    Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), single]
        ",
    );
}

#[test]
fn distinct() {
    plan(
        "SELECT DISTINCT k FROM t",
        2,
        r"
        Materialize out [changes, key=[k@0], hash[k@0]]
          Distinct [changes, key=[k@0], hash[k@0]]
            Exchange hash[k@0] [changes, hash[k@0]]
              Scan t columns=[k] [changes, any]
        ",
    );
}

#[test]
fn union_distinct() {
    plan(
        "SELECT k FROM t UNION SELECT n FROM mv",
        2,
        r"
        Materialize out [changes, key=[k@0], hash[k@0]]
          Distinct [changes, key=[k@0], hash[k@0]]
            Exchange hash[k@0] [changes, hash[k@0]]
              Union [changes, any]
                Project CAST(k@0 AS Int64) AS k [changes, any]
                  Scan t columns=[k] [changes, any]
                Scan mv columns=[k] [changes, any]
        ",
    );
}

#[test]
fn union_all_with_constant() {
    fragments(
        "SELECT id FROM t UNION ALL SELECT 1",
        r"
        Fragment 0 tasks=1 to=1 input=0 hash[id@0]
          Values rows=1 [append-only, key=[], single]
        Fragment 1 tasks=2 from=[0]
          Materialize out [changes, any]
            Union [changes, any]
              Scan t columns=[id] [changes, key=[id@0], any]
              Exchange hash[id@0] [append-only, key=[], hash[id@0]]
        ",
    );
}

#[test]
fn union_all_of_sources() {
    plan(
        "SELECT ts, price FROM bids UNION ALL SELECT ts, auction FROM bids",
        2,
        r"
        Materialize out [append-only, watermark=ts@0 (time), any]
          Union [append-only, watermark=ts@0 (time), any]
            Project ts@1, price@0 [append-only, watermark=ts@0 (time), any]
              Project price@1, ts@2 [append-only, watermark=ts@1 (time), any]
                Exchange any [append-only, watermark=ts@2 (time), any]
                  Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
            Project ts@1, auction@0 AS price [append-only, watermark=ts@0 (time), any]
              Project auction@0, ts@2 [append-only, watermark=ts@1 (time), any]
                Exchange any [append-only, watermark=ts@2 (time), any]
                  Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
        ",
    );
}

#[test]
fn count_over_union() {
    plan(
        "SELECT count(*) FROM (SELECT id FROM t UNION ALL SELECT id FROM u) x",
        1,
        r"
        Materialize out [changes, key=[], single]
          Aggregate group=[] calls=[count(*)] [changes, key=[], single]
            Union [changes, single]
              Project 1 AS __one [changes, single]
                Scan t columns=[id] [changes, key=[id@0], single]
              Project 1 AS __one [changes, single]
                Scan u columns=[id] [changes, single]
        ",
    );
}

#[test]
fn top_n() {
    plan(
        "SELECT s FROM t ORDER BY v DESC, k NULLS FIRST LIMIT 3 OFFSET 1",
        2,
        r"
        Materialize out [changes, single]
          Project s@0 [changes, single]
            TopN order=[v@1 desc, k@2 nulls first, s@0] limit=3 offset=1 [changes, single]
              Exchange single [changes, single]
                Project s@2, v@1, k@0 [changes, any]
                  Scan t columns=[k, v, s] [changes, any]
        ",
    );
}

#[test]
fn top_n_by_expression() {
    plan(
        "SELECT id FROM t ORDER BY v * 2 LIMIT 3",
        1,
        r"
        Materialize out [changes, key=[id@0], single]
          Project id@0 [changes, key=[id@0], single]
            TopN order=[v@1 * 2@2, id@0, v@1] limit=3 [changes, key=[id@0], single]
              Project id@0, v@1, v@1 * 2 AS v@1 * 2 [changes, key=[id@0], single]
                Scan t columns=[id, v] [changes, key=[id@0], single]
        ",
    );
}

#[test]
fn limit_without_order() {
    plan(
        "SELECT s FROM t LIMIT 3",
        1,
        r"
        Materialize out [changes, single]
          TopN order=[s@0] limit=3 [changes, single]
            Scan t columns=[s] [changes, single]
        ",
    );
}

#[test]
fn limit_in_a_subquery() {
    plan(
        "SELECT k, count(*) FROM (SELECT k FROM t ORDER BY v LIMIT 10) x GROUP BY k",
        2,
        r"
        Materialize out [changes, key=[k@0], single]
          Aggregate group=[k@0] calls=[count(*)] [changes, key=[k@0], single]
            Project k@0 [changes, single]
              TopN order=[v@1, k@0] limit=10 [changes, single]
                Exchange single [changes, single]
                  Scan t columns=[k, v] [changes, any]
        ",
    );
}

#[test]
fn view() {
    plan(
        "SELECT k, w FROM v ORDER BY w",
        1,
        r"
        Materialize out [changes, single]
          Project k@0, v@1 + 1 AS w [changes, single]
            Filter v@1 > 0 [changes, single]
              Scan t columns=[k, v] [changes, single]
        ",
    );
}

#[test]
fn unnest() {
    plan(
        "SELECT id, unnest(string_to_array(s, ',')) AS e FROM t",
        2,
        r#"
        Materialize out [changes, any]
          Unnest [__unnest_placeholder(string_to_array(t.s,Utf8(",")))@1] [changes, any]
            Project id@0, try[string_to_array($0, Utf8(","))](s@1) AS __unnest_placeholder(string_to_array(t.s,Utf8(","))) [changes, key=[id@0], any]
              Scan t columns=[id, s] [changes, key=[id@0], any]
        "#,
    );
}

#[test]
fn guards() {
    plan(
        "SELECT v / k AS q, CAST(s AS INT) AS i, v + 1 AS n, upper(s) AS u, v % 7 AS m FROM t",
        1,
        r"
        Materialize out [changes, single]
          Project try[$0 / $1](v@1, CAST(k@0 AS Int64)) AS q, try[TRY_CAST($0 AS Int32)](s@2) AS i, v@1 + 1 AS n, upper(s@2) AS u, v@1 % 7 AS m [changes, single]
            Scan t columns=[k, v, s] [changes, single]
        ",
    );
}

#[test]
fn scalar_subquery() {
    plan(
        "SELECT id FROM t WHERE v > (SELECT avg(n) FROM mv)",
        2,
        r"
        Materialize out [changes, key=[id@0], single]
          Project id@0 [changes, key=[id@0], single]
            Join inner on=[] filter=CAST(v@1 AS Float64) > avg@2 [changes, key=[id@0], single]
              Exchange single [changes, key=[id@0], single]
                Scan t columns=[id, v] [changes, key=[id@0], any]
              Aggregate final group=[] calls=[avg(mv.n@0)] [changes, key=[], single]
                Exchange single [append-only, single]
                  Aggregate partial group=[] calls=[avg(mv.n@0)] [append-only, any]
                    Project CAST(n@0 AS Float64) AS mv.n [changes, any]
                      Scan mv columns=[n] [changes, any]
        ",
    );
}

#[test]
fn correlated_scalar_subquery() {
    plan(
        "SELECT id, (SELECT count(*) FROM u WHERE u.id = t.id) AS n FROM t",
        2,
        r"
        Materialize out [changes, key=[id@0], hash[id@0]]
          Project id@0, CASE WHEN __always_true@3 IS NULL THEN 0 ELSE count@1 END AS n [changes, key=[id@0], hash[id@0]]
            Join left on=[id@0 = id@1] [changes, key=[id@0], hash[id@0]]
              Exchange hash[id@0] [changes, key=[id@0], hash[id@0]]
                Scan t columns=[id] [changes, key=[id@0], any]
              Project count(Int64(1))@1 AS count, id@0, true AS __always_true [changes, key=[id@1], hash[id@1]]
                Aggregate group=[id@0] calls=[count(*)] [changes, key=[id@0], hash[id@0]]
                  Exchange hash[id@0] [changes, hash[id@0]]
                    Scan u columns=[id] [changes, any]
        ",
    );
}

#[test]
fn cte_twice() {
    plan(
        "WITH a AS (SELECT k, count(*) c FROM t GROUP BY k) SELECT x.k FROM a x JOIN a y ON x.c = y.c + 1",
        1,
        r"
        Materialize out [changes, single]
          Project k@0 [changes, single]
            Join inner on=[c@1 = c@0 + 1@1] [changes, single]
              Aggregate group=[k@0] calls=[count(*)] [changes, key=[k@0], single]
                Scan t columns=[k] [changes, single]
              Project c@0, c@0 + 1 AS c@0 + 1 [changes, single]
                Project count(Int64(1))@1 AS c [changes, single]
                  Aggregate group=[k@0] calls=[count(*)] [changes, key=[k@0], single]
                    Scan t columns=[k] [changes, single]
        ",
    );
}

#[test]
fn constants() {
    plan(
        "SELECT 1 AS one, 'x' AS x",
        2,
        r"
        Materialize out [append-only, key=[], single]
          Values rows=1 [append-only, key=[], single]
        ",
    );
}

#[test]
fn values() {
    plan(
        "VALUES (1, 'a'), (2, NULL)",
        2,
        r"
        Materialize out [append-only, single]
          Values rows=2 [append-only, single]
        ",
    );
}

#[test]
fn values_join() {
    plan(
        "SELECT t.id, x.b FROM t JOIN (VALUES (1, 'a'), (2, 'b')) AS x(a, b) ON t.v = x.a",
        2,
        r"
        Materialize out [changes, any]
          Project id@0, b@3 [changes, any]
            Join inner on=[v@1 = a@0] [changes, hash[v@1]]
              Exchange hash[v@1] [changes, key=[id@0], hash[v@1]]
                Scan t columns=[id, v] [changes, key=[id@0], any]
              Exchange hash[a@0] [append-only, hash[a@0]]
                Values rows=2 [append-only, single]
        ",
    );
}

#[test]
fn key_computed_away() {
    plan(
        "SELECT id + 1 AS i, v FROM t",
        1,
        r"
        Materialize out [changes, single]
          Project id@0 + 1 AS i, v@1 [changes, single]
            Scan t columns=[id, v] [changes, key=[id@0], single]
        ",
    );
}

#[test]
fn nothing_and_one_row() {
    let rows = |sql: &str| {
        let plan = stream(sql, 2, false).unwrap();
        let OpSpec::Values(v) = &plan.inputs[0].op else { panic!("{}", plan.explain()) };
        v.rows.num_rows()
    };
    assert_eq!(rows("SELECT 1 AS a WHERE false"), 0);
    assert_eq!(rows("SELECT id FROM t LIMIT 0"), 0);
    assert_eq!(rows("SELECT id FROM t WHERE 1 = 2"), 0);
    assert_eq!(rows("SELECT a + 1 FROM (VALUES (1), (2)) AS x(a)"), 2);
    // A global aggregate has its row even then.
    plan(
        "SELECT count(*) FROM t WHERE false",
        2,
        r"
        Materialize out [changes, key=[], stays=[], rising=[count@0], single]
          Aggregate group=[] calls=[count(*)] [changes, key=[], stays=[], rising=[count@0], single]
            Values rows=0 [append-only, key=[], single]
        ",
    );
}

#[track_caller]
fn refused(sql: &str, on_close: bool, expected: &str) {
    assert_eq!(refusal(sql, 2, on_close), expected, "{sql}");
}

#[test]
fn emit_on_window_close_is_refused_with_a_reason() {
    let hint = " hint: GROUP BY, join on, or PARTITION BY window_start, window_end of TUMBLE(…) or HOP(…)";
    let needs = |found: &str| {
        format!(
            "Unsupported: EMIT ON WINDOW CLOSE needs an aggregate, a join, SELECT DISTINCT, window functions (OVER) or a top-n per group over windows at the top of the query, found {found}{hint}"
        )
    };
    refused("SELECT ts FROM bids", true, &needs("a scan of \"bids\""));
    refused(
        "SELECT a.ts FROM bids a LEFT JOIN bids b ON a.auction = b.auction AND a.ts > b.ts",
        true,
        "Unsupported: EMIT ON WINDOW CLOSE of a join needs a condition that keeps its sides in one window hint: join on window_start or window_end of both sides, or bound how far their event times may be apart",
    );
    let partition = " needs a PARTITION BY column that the watermark closes hint: partition by window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR";
    refused(
        "SELECT sum(price) OVER (PARTITION BY auction) FROM bids",
        true,
        &format!("Unsupported: EMIT ON WINDOW CLOSE of window functions (OVER){partition}"),
    );
    refused(
        "SELECT ts FROM bids QUALIFY row_number() OVER (PARTITION BY auction ORDER BY ts) = 1",
        true,
        &format!("Unsupported: EMIT ON WINDOW CLOSE of a top-n per group{partition}"),
    );
    refused(
        "SELECT DISTINCT auction FROM bids",
        true,
        "Unsupported: EMIT ON WINDOW CLOSE of SELECT DISTINCT needs a column that the watermark closes hint: select window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR",
    );
    refused("SELECT ts, count(*) FROM bids GROUP BY ts LIMIT 3", true, &needs("LIMIT"));
    refused(
        "SELECT window_end, count(*) FROM TUMBLE((SELECT t.id, bids.ts FROM t JOIN bids ON t.id = auction), ts, INTERVAL '1 second') GROUP BY window_end",
        true,
        "Unsupported: EMIT ON WINDOW CLOSE needs append-only input, and this query's input may take rows back",
    );
    let by = "Unsupported: EMIT ON WINDOW CLOSE needs a GROUP BY column that the watermark closes hint: group by window_start or window_end of TUMBLE(…) or HOP(…) over a source with WATERMARK FOR";
    refused("SELECT auction, count(*) FROM bids GROUP BY auction", true, by);
    refused("SELECT count(*) FROM bids", true, by);
    // A bound that was computed from is no bound any more.
    refused(
        "SELECT w, count(*) FROM (SELECT window_end + INTERVAL '1 second' AS w FROM TUMBLE(bids, ts, INTERVAL '1 second')) x GROUP BY w",
        true,
        by,
    );
}

/// What waits for windows makes what it reads wait too, if that would take rows back.
#[test]
fn waiting_goes_down_as_far_as_it_must() {
    on_close(
        "SELECT auction, n FROM (SELECT auction, window_end, count(*) AS n, rank() OVER (PARTITION BY window_end ORDER BY count(*) DESC) AS r FROM TUMBLE(bids, ts, INTERVAL '10 seconds') GROUP BY auction, window_end) x WHERE r <= 3",
        r"
        Materialize out [append-only, any]
          Project auction@0, count(Int64(1))@2 AS n [append-only, any]
            GroupTopN partition=[window_end@1] order=[count(Int64(1))@2 desc] rank<=3 window=window_end@1 emit=on-close [append-only, key=[auction@0, window_end@1], watermark=window_end@1 (end), hash[window_end@1]]
              Exchange hash[window_end@1] [append-only, key=[auction@0, window_end@1], watermark=window_end@1 (end), hash[window_end@1]]
                Aggregate group=[auction@0, window_end@1] calls=[count(*)] window=window_end@1 emit=on-close [append-only, key=[auction@0, window_end@1], watermark=window_end@1 (end), hash[auction@0, window_end@1]]
                  Exchange hash[auction@0, window_end@1] [append-only, watermark=window_end@1 (end), hash[auction@0, window_end@1]]
                    Project auction@0, window_end_of(tumble_start(ts@1, 10000000, 0), 10000000) AS window_end [append-only, watermark=window_end@1 (end), any]
                      Filter ts@1 IS NOT NULL [append-only, watermark=ts@1 (time), any]
                        Source bids columns=[auction, ts] watermark=ts@1 - 5 s [append-only, watermark=ts@1 (time), any]
        ",
    );
    on_close(
        "SELECT a.auction, a.price, b.price AS other FROM TUMBLE(bids, ts, INTERVAL '10 seconds') a FULL JOIN TUMBLE(bids, ts, INTERVAL '10 seconds') b ON a.auction = b.auction AND a.window_start = b.window_start",
        r"
        Materialize out [append-only, any]
          Project auction@0, price@1, price@4 AS other [append-only, any]
            Close window=CASE WHEN window_start@2 IS NOT NULL THEN window_start@2 ELSE window_start@5 END@6 [append-only, watermark=CASE WHEN window_start@2 IS NOT NULL THEN window_start@2 ELSE window_start@5 END@6 (start of 10 s), any]
              Project auction@0, price@1, window_start@2, auction@3, price@4, window_start@5, CASE WHEN window_start@2 IS NOT NULL THEN window_start@2 ELSE window_start@5 END AS CASE WHEN window_start@2 IS NOT NULL THEN window_start@2 ELSE window_start@5 END [changes, any]
                Join full on=[auction@0 = auction@0, window_start@2 = window_start@2] free=window_start@2 < watermark free=window_start@2 < watermark [changes, any]
                  Exchange hash[auction@0, window_start@2] [append-only, watermark=window_start@2 (start of 10 s), hash[auction@0, window_start@2]]
                    Project auction@0, price@1, tumble_start(ts@2, 10000000, 0) AS window_start [append-only, watermark=window_start@2 (start of 10 s), any]
                      Filter ts@2 IS NOT NULL [append-only, watermark=ts@2 (time), any]
                        Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
                  Exchange hash[auction@0, window_start@2] [append-only, watermark=window_start@2 (start of 10 s), hash[auction@0, window_start@2]]
                    Project auction@0, price@1, tumble_start(ts@2, 10000000, 0) AS window_start [append-only, watermark=window_start@2 (start of 10 s), any]
                      Filter ts@2 IS NOT NULL [append-only, watermark=ts@2 (time), any]
                        Source bids columns=[auction, price, ts] watermark=ts@2 - 5 s [append-only, watermark=ts@2 (time), any]
        ",
    );
}

#[test]
fn aggregates_over_sorted_rows() {
    plan(
        "SELECT k, string_agg(DISTINCT s, '-' ORDER BY s DESC) AS x, last_value(v ORDER BY id) FILTER (WHERE v > 3) AS l, bit_or(v) AS b FROM t GROUP BY k",
        2,
        r"
        Materialize out [changes, key=[k@0], hash[k@0]]
          Aggregate group=[t.k@0] calls=[distinct string_agg($0, -) of sorted[t.s@1 desc], first_value($1) of sorted[t.id@2 desc, t.v@3 desc] first 1 filter t.v > 3@4, bit_or(t.v@3)] [changes, key=[k@0], hash[k@0]]
            Exchange hash[t.k@0] [changes, key=[t.id@2], hash[t.k@0]]
              Project k@1 AS t.k, s@3 AS t.s, id@0 AS t.id, v@2 AS t.v, v@2 > 3 AS t.v > 3 [changes, key=[t.id@2], any]
                Scan t columns=[id, k, v, s] [changes, key=[id@0], any]
        ",
    );
}

#[test]
fn a_single_task_needs_no_exchange() {
    fn single(n: &StreamNode) {
        assert!(!matches!(n.op, OpSpec::Exchange(_)));
        assert_eq!(n.props.distribution, Distribution::Single);
        n.inputs.iter().for_each(single);
    }
    for sql in [
        "SELECT k, count(*) FROM t GROUP BY k",
        "SELECT t.id FROM t JOIN u ON t.k = u.k",
        "SELECT k FROM t UNION SELECT n FROM mv",
        "SELECT id FROM t UNION ALL SELECT 1",
        "SELECT s FROM t LIMIT 3",
    ] {
        let plan = stream(sql, 1, false).unwrap();
        single(&plan);
        assert_eq!(cut(plan, 1).fragments.len(), 1);
    }
}

/// A long chain of joins: nothing may grow faster than the query, which is what made the planning of
/// such queries slow elsewhere.
#[test]
fn twenty_joins_are_planned_in_proportion() {
    fn count(n: &StreamNode) -> (usize, usize) {
        let below = n.inputs.iter().map(count).fold((0, 0), |(a, b), (x, y)| (a + x, b + y));
        let width = n.schema.fields().len();
        (below.0 + 1, below.1 + width)
    }
    let query = |n: usize, join: &str, on: &dyn Fn(usize) -> String| {
        let joins: Vec<String> = (1..n).map(|i| format!("{join} t t{i} ON {}", on(i))).collect();
        let columns: Vec<String> = (0..n).map(|i| format!("t{i}.v AS v{i}")).collect();
        format!("SELECT {} FROM t t0 {}", columns.join(", "), joins.join(" "))
    };
    let chain: &dyn Fn(usize) -> String = &|i| format!("t{}.k = t{i}.id", i - 1);
    let star: &dyn Fn(usize) -> String = &|i| format!("t0.k = t{i}.id AND t{i}.v > {i}");
    for (join, on) in [("JOIN", chain), ("LEFT JOIN", chain), ("JOIN", star), ("LEFT JOIN", star)] {
        let of = |n| count(&stream(&query(n, join, on), 2, false).unwrap());
        let ((ten, narrow), (twenty, wide)) = (of(10), of(20));
        // A scan, a filter, two exchanges, two projections and the join itself for each.
        assert!(twenty <= 8 * 20, "{twenty} operators for 20 inputs");
        assert!(twenty <= 2 * ten + 6, "{ten} operators for 10 inputs, {twenty} for 20");
        // Each join has the columns of all before it.
        assert!(wide <= 5 * narrow, "{narrow} columns for 10 inputs, {wide} for 20");
    }
}

#[test]
fn columns_match_their_operators() {
    // Whatever the plan, every operator's schema has the columns its properties speak of.
    fn check(n: &StreamNode) {
        let width = n.schema.fields().len();
        assert!(n.props.stream_key.iter().flatten().all(|c| *c < width));
        assert!(n.props.watermarks.iter().all(|w| w.column < width));
        if let Distribution::Hash(c) = &n.props.distribution {
            assert!(c.iter().all(|c| *c < width));
        }
        if let OpSpec::Project(p) = &n.op {
            for (e, f) in p.exprs.iter().zip(n.schema.fields()) {
                assert_eq!(e.data_type(&n.inputs[0].schema).unwrap(), *f.data_type(), "{}", n.explain());
            }
        }
        n.inputs.iter().for_each(check);
    }
    for sql in [
        "SELECT u.d + t.v, t.s || 'x', t.v / u.f FROM t LEFT JOIN u ON t.k + 1 = u.k AND t.s <> 'a'",
        "SELECT k + 1 AS a, sum(v * 2) AS b, max(CAST(s AS INT)) AS c FROM t GROUP BY k + 1 ORDER BY b + a LIMIT 5",
        "SELECT substr(s, 1, 2), split_part(s, ',', 1), date_trunc('hour', ts) FROM t JOIN bids ON id = auction",
        "SELECT count(*) FROM t a CROSS JOIN t b",
        "SELECT count(*) FROM (SELECT 1 AS x FROM t) a, (SELECT 2 AS y FROM u) b",
        "SELECT count(*) FROM (SELECT 1 FROM t UNION ALL SELECT v FROM t UNION ALL SELECT 3) x",
        "SELECT 5 AS five FROM t, (VALUES (1)) AS x(a)",
        "SELECT count(*) FROM (SELECT DISTINCT 1 FROM t) x",
        "SELECT 1 AS a FROM t GROUP BY k HAVING max(v) > 2",
        "SELECT x.n FROM t, LATERAL (SELECT max(u.f) AS n FROM u WHERE u.id = t.id) x",
        "SELECT sum(d), avg(d), min(f), sum(k), avg(f) FROM u",
        "SELECT id, (SELECT sum(price) FROM bids WHERE auction = t.id) FROM t",
    ] {
        for parallelism in [1, 3] {
            let plan = stream(sql, parallelism, false).unwrap();
            check(&plan);
        }
    }
}
