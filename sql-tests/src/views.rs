//! Materialized views over the tables of [`crate::dml`]: every operator and aggregate, with the
//! shapes in which they have edge cases.

/// A view.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// Its query.
    pub query: &'static str,
    /// Views that it reads.
    pub reads: &'static [&'static str],
}

const fn v(name: &'static str, query: &'static str) -> View {
    View { name, query, reads: &[] }
}

const fn on(name: &'static str, reads: &'static [&'static str], query: &'static str) -> View {
    View { name, query, reads }
}

/// All of them; a view stands after those that it reads.
pub const VIEWS: &[View] = &[
    // Filter.
    v("f_cmp", "SELECT * FROM t WHERE a > 0"),
    v("f_null", "SELECT id, s FROM t WHERE s IS NULL OR a IS NOT DISTINCT FROM 3"),
    v("f_bool", "SELECT id FROM t WHERE ok"),
    v("f_not", "SELECT id, ok FROM t WHERE NOT ok AND NOT (a = 1)"),
    v("f_like", "SELECT a, s FROM u WHERE s LIKE 'a%' OR s ILIKE '%B' OR s NOT LIKE '%\\_%'"),
    v("f_in", "SELECT * FROM u WHERE a IN (1, 2, NULL) OR s NOT IN ('a', 'b')"),
    v("f_between", "SELECT * FROM u WHERE d BETWEEN -5 AND 10.25 AND f NOT BETWEEN 0 AND 1"),
    v("f_ts", "SELECT * FROM u WHERE ts >= '2024-01-01 00:01:00' AND ts < '2024-01-01 00:02:30'"),
    v("f_false", "SELECT * FROM t WHERE 1 = 0"),
    v("f_nulls_only", "SELECT * FROM u WHERE NULL"),
    // Project.
    v(
        "p_case",
        "SELECT id, CASE WHEN a > 3 THEN 'big' WHEN a > 0 THEN 'small' WHEN a IS NULL THEN NULL ELSE 'neg' END AS c, CASE a WHEN 1 THEN 10 WHEN 2 THEN 20 END AS e FROM t",
    ),
    v(
        "p_cast",
        "SELECT id, CAST(s AS int) AS i, CAST(f AS int) AS fi, CAST(a AS text) AS at, CAST(d AS double precision) AS dd, CAST(b AS smallint) AS b2, CAST(s AS numeric(6,2)) AS sn FROM t",
    ),
    v("p_div", "SELECT id, b / a AS q, b % a AS r, d / a AS dq, f / a AS fq, 10 / (a - 1) AS c FROM t"),
    v("p_arith", "SELECT id, a + 1 AS x, b * 2 - a AS y, d * d AS dd, -f AS nf, abs(a) AS ab, a & 3 AS bits FROM t"),
    v(
        "p_text",
        "SELECT id, upper(s) AS u, length(s) AS l, s || '!' AS c, substr(s, 2, 2) AS p, concat(s, a) AS k, trim(s) AS tr, coalesce(s, 'none') AS co, nullif(s, 'a') AS nu FROM t",
    ),
    v("p_dup", "SELECT a AS x, a AS y, 1 AS one, NULL AS n FROM u"),
    v(
        "p_time",
        "SELECT id, date_trunc('minute', ts) AS m, extract(second FROM ts) AS s, ts + INTERVAL '1 hour' AS h, CAST(ts AS date) AS dd FROM t",
    ),
    v("p_bool", "SELECT id, a > 1 AND ok AS x, a > 1 OR ok AS y, NOT ok AS z, a = b AS e, s IS NULL AS n FROM t"),
    // Aggregates.
    v("g_count", "SELECT a, count(*) AS c, count(s) AS cs, count(d) AS cd FROM t GROUP BY a"),
    v("g_sum", "SELECT a, sum(b) AS sb, sum(d) AS sd, sum(f) AS sf, sum(a) AS sa FROM t GROUP BY a"),
    v("g_avg", "SELECT s, avg(a) AS aa, avg(d) AS ad, avg(f) AS af FROM u GROUP BY s"),
    v(
        "g_minmax",
        "SELECT a, min(b) AS nb, max(b) AS xb, min(s) AS ns, max(s) AS xs, min(d) AS nd, max(d) AS xd, min(ts) AS nt, max(ts) AS xt, min(f) AS nf, max(f) AS xf FROM t GROUP BY a",
    ),
    v("g_minmax_bool", "SELECT a, min(ok) AS n, max(ok) AS x FROM t GROUP BY a"),
    v(
        "g_distinct",
        "SELECT a, count(DISTINCT s) AS cs, sum(DISTINCT b) AS sb, avg(DISTINCT d) AS ad, min(DISTINCT b) AS nb, count(DISTINCT ts) AS ct FROM t GROUP BY a",
    ),
    v(
        "g_distinct_bag",
        "SELECT s, count(DISTINCT a) AS ca, sum(DISTINCT a) AS sa, count(DISTINCT d) AS cd, count(a) AS c FROM u GROUP BY s",
    ),
    v(
        "g_filter",
        "SELECT a, count(*) FILTER (WHERE ok) AS c, sum(b) FILTER (WHERE s = 'a') AS sb, max(d) FILTER (WHERE d < 10) AS xd, count(DISTINCT s) FILTER (WHERE b > 10) AS cs FROM t GROUP BY a",
    ),
    v("g_having", "SELECT a, sum(b) AS sb FROM t GROUP BY a HAVING count(*) > 1 AND sum(b) > 100"),
    v("g_having_only", "SELECT s FROM u GROUP BY s HAVING count(*) > 2"),
    v("g_keys", "SELECT a, s, ok, count(*) AS c FROM t GROUP BY a, s, ok"),
    v("g_expr", "SELECT a % 2 AS p, length(s) AS l, sum(b + a) AS sb FROM t GROUP BY a % 2, length(s)"),
    v("g_ts", "SELECT date_trunc('minute', ts) AS m, count(*) AS c, sum(d) AS sd FROM u GROUP BY 1"),
    v("g_float", "SELECT f, count(*) AS c FROM u GROUP BY f"),
    v("g_decimal", "SELECT d, count(*) AS c, sum(a) AS sa FROM u GROUP BY d"),
    v("g_no_agg", "SELECT a, s FROM u GROUP BY a, s"),
    v(
        "g_case",
        "SELECT CASE WHEN a > 0 THEN 'p' ELSE 'n' END AS c, sum(CASE WHEN ok THEN 1 ELSE 0 END) AS oks FROM t GROUP BY 1",
    ),
    v("g_div", "SELECT a, sum(b / a) AS q, count(b / a) AS c FROM t GROUP BY a"),
    v(
        "ga_all",
        "SELECT count(*) AS c, count(a) AS ca, sum(b) AS sb, avg(f) AS af, min(s) AS ns, max(ts) AS xt, count(DISTINCT s) AS ds FROM t",
    ),
    v("ga_bag", "SELECT count(*) AS c, sum(a) AS s, min(d) AS n, max(d) AS x FROM u WHERE a > 0"),
    v("ga_having", "SELECT sum(a) AS s FROM u HAVING count(*) > 5"),
    v("ga_arith", "SELECT sum(b) / count(*) AS q, max(a) - min(a) AS r FROM t"),
    v("g_nested", "SELECT c, count(*) AS n FROM (SELECT a, count(*) AS c FROM t GROUP BY a) AS x GROUP BY c"),
    v("g_nested2", "SELECT max(m) AS mm, min(m) AS nm FROM (SELECT s, max(b) AS m FROM t GROUP BY s) AS x"),
    // Aggregates over sorted rows, booleans and bits.
    v(
        "sr_arrays",
        "SELECT a, array_agg(s) AS x, array_agg(DISTINCT d) AS y, array_agg(b ORDER BY s DESC, f) AS z, array_agg(f) FILTER (WHERE ok) AS q FROM t GROUP BY a",
    ),
    v(
        "sr_texts",
        "SELECT a, string_agg(s, ',') AS x, string_agg(DISTINCT s, ';' ORDER BY s DESC) AS y, string_agg(s, '') FILTER (WHERE d > 0) AS z FROM u GROUP BY a",
    ),
    v(
        "sr_firsts",
        "SELECT a, first_value(s ORDER BY d DESC) AS f, last_value(ts ORDER BY d, s) AS l, nth_value(d, 2 ORDER BY ts) AS n, nth_value(d, -2) AS m, any_value(f) AS v, first_value(s ORDER BY d) IGNORE NULLS AS i, last_value(d) AS p FROM u GROUP BY a",
    ),
    v(
        "sr_medians",
        "SELECT s, median(a) AS m, median(d) AS md, median(DISTINCT a) AS mm, percentile_cont(0.3) WITHIN GROUP (ORDER BY f DESC) AS p, approx_median(a) AS am, approx_percentile_cont(d, 0.9) AS ap, approx_distinct(d) AS ad FROM u GROUP BY s",
    ),
    v(
        "sr_spread",
        "SELECT a, var_samp(b) AS vs, var_pop(f) AS vp, stddev(d) AS sd, stddev_pop(DISTINCT b) AS sp, covar_samp(b, f) AS cs, covar_pop(d, b) AS cp, corr(b, d) AS co FROM t GROUP BY a",
    ),
    v(
        "sr_regr",
        "SELECT ok, regr_slope(b, d) AS x, regr_intercept(b, d) AS y, regr_count(b, f) AS c, regr_r2(b, d) AS r, regr_avgx(b, d) AS ax, regr_avgy(b, d) AS ay, regr_sxx(b, d) AS xx, regr_syy(b, d) AS yy, regr_sxy(b, d) AS xy FROM t GROUP BY ok",
    ),
    v(
        "sr_logic",
        "SELECT a, bool_and(ok) AS n, bool_or(ok) AS o, bit_and(b) AS ba, bit_or(id) AS bo, bit_xor(b) AS bx, bit_xor(DISTINCT b) AS dx, bool_or(DISTINCT ok) AS od FROM t GROUP BY a",
    ),
    v(
        "sr_whole",
        "SELECT array_agg(a) AS x, string_agg(s, ',' ORDER BY a, s) AS y, median(d) AS m, bit_or(a) AS o, first_value(s ORDER BY ts) AS f, corr(a, d) AS c, approx_percentile_cont_with_weight(a, 2, 0.5) AS w FROM u",
    ),
    v("sr_nested", "SELECT array_agg(x) AS xs FROM (SELECT a, array_agg(s) AS x FROM u GROUP BY a) q"),
    v("sr_many_keys", "SELECT s, count(DISTINCT a, d) AS c, max(make_array(a)) AS m FROM u GROUP BY s"),
    v("sr_wide", "SELECT a, sum(CAST(d AS numeric(38,6))) AS s, avg(CAST(d AS numeric(38,2))) AS m FROM t GROUP BY a"),
    v(
        "sr_ev",
        "SELECT k, array_agg(v) AS x, bit_and(v) AS ba, bit_or(v) AS bo, bit_xor(v) AS bx, bool_and(v > 0) AS p FROM ev GROUP BY k",
    ),
    // Grouping sets.
    v(
        "gs_rollup",
        "SELECT a, s, count(*) AS c, sum(b) AS sb, grouping(a) AS ga, grouping(a, s) AS g FROM t GROUP BY ROLLUP (a, s)",
    ),
    v(
        "gs_cube",
        "SELECT a % 2 AS p, ok, count(*) AS c, sum(a) AS sa, count(DISTINCT s) AS ds, max(d) AS x FROM t GROUP BY CUBE (a % 2, ok)",
    ),
    v(
        "gs_sets",
        "SELECT a, s, count(*) AS c, array_agg(d) AS x, grouping(s) AS g FROM u GROUP BY GROUPING SETS ((a), (s), (a, s), (), (a))",
    ),
    v(
        "gs_mixed",
        "SELECT s, a, ts IS NULL AS n, count(f) AS c FROM u GROUP BY s, ROLLUP (a, ts IS NULL) HAVING count(*) > 1",
    ),
    v("gs_cast", "SELECT CAST(s AS int) AS i, count(*) AS c FROM u GROUP BY ROLLUP (CAST(s AS int))"),
    v("gs_only_all", "SELECT count(*) AS c, min(s) AS m FROM u GROUP BY GROUPING SETS ((), ())"),
    v(
        "gs_window",
        "SELECT window_start, k, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY GROUPING SETS ((window_start, k), (window_start))",
    ),
    // Joins.
    v("j_inner", "SELECT t.id, t.a, u.s, u.d FROM t JOIN u ON t.a = u.a"),
    v("j_left", "SELECT t.id, t.s, w.n, w.v FROM t LEFT JOIN w ON t.a = w.k"),
    v("j_right", "SELECT t.id, w.k, w.n, w.v FROM t RIGHT JOIN w ON t.a = w.k"),
    v("j_full", "SELECT t.id, t.a, w.k, w.n FROM t FULL JOIN w ON t.a = w.k"),
    v("j_two", "SELECT t.id, u.a, u.s FROM t JOIN u ON t.a = u.a AND t.s = u.s"),
    v("j_two_left", "SELECT t.id, u.a, u.s, u.f FROM t LEFT JOIN u ON t.a = u.a AND t.s = u.s"),
    v("j_two_full", "SELECT t.id, w.k, w.n, w.v FROM t FULL JOIN w ON t.a = w.k AND t.s = w.n"),
    v("j_rest", "SELECT t.id, u.d FROM t JOIN u ON t.a = u.a AND t.d < u.d"),
    v("j_rest_left", "SELECT t.id, t.d, u.d AS ud FROM t LEFT JOIN u ON t.a = u.a AND t.d < u.d AND u.s <> 'b'"),
    v("j_rest_right", "SELECT t.id, u.a, u.d FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 100"),
    v("j_rest_full", "SELECT t.id, t.b, w.k, w.v FROM t FULL JOIN w ON t.a = w.k AND t.b > w.v * 50"),
    v("j_one_side", "SELECT t.id, w.n FROM t LEFT JOIN w ON t.a = w.k AND t.ok"),
    v("j_self", "SELECT x.id AS i, y.id AS j FROM t x JOIN t y ON x.a = y.a AND x.id < y.id"),
    v("j_self_left", "SELECT x.id AS i, y.id AS j FROM t x LEFT JOIN t y ON x.id = y.a"),
    v("j_self_bag", "SELECT x.a, x.s, y.s AS ys FROM u x JOIN u y ON x.a = y.a WHERE x.a > 4"),
    v("j_cross", "SELECT w.k, x.c FROM w CROSS JOIN (SELECT count(*) AS c FROM u) AS x"),
    v("j_cross_where", "SELECT t.id, w.k FROM t, w WHERE t.a > w.k AND w.n = 'a'"),
    v("j_theta", "SELECT t.id, w.k, w.n FROM t LEFT JOIN w ON t.b < w.v"),
    v("j_expr", "SELECT t.id, u.a FROM t JOIN u ON t.a + 1 = u.a * 2"),
    v("j_null_safe", "SELECT t.id, u.a, u.s FROM t JOIN u ON t.a IS NOT DISTINCT FROM u.a AND t.s = u.s"),
    v("j_three", "SELECT t.id, u.s, w.v FROM t JOIN u ON t.a = u.a JOIN w ON u.a = w.k AND w.n = u.s"),
    v("j_three_outer", "SELECT t.id, u.d, w.v FROM t LEFT JOIN u ON t.a = u.a AND t.s = u.s LEFT JOIN w ON u.a = w.k"),
    v("j_text_keys", "SELECT t.id, u.a, w.k FROM t JOIN u ON t.s = u.s LEFT JOIN w ON w.n = u.s"),
    v("j_decimal_key", "SELECT t.id, u.a FROM t JOIN u ON t.d = u.d"),
    v("j_float_key", "SELECT t.id, u.a FROM t JOIN u ON t.f = u.f"),
    v("j_ts_key", "SELECT t.id, u.a, u.ts FROM t FULL JOIN u ON t.ts = u.ts"),
    v("j_mixed_types", "SELECT t.id, u.s FROM t JOIN u ON t.b = u.a"),
    v(
        "j_agg",
        "SELECT x.a, x.c, y.m FROM (SELECT a, count(*) AS c FROM t GROUP BY a) x FULL JOIN (SELECT a, max(d) AS m FROM u GROUP BY a) y ON x.a = y.a",
    ),
    v("j_agg_left", "SELECT t.id, y.c FROM t LEFT JOIN (SELECT a, count(*) AS c FROM u GROUP BY a) y ON t.a = y.a"),
    v(
        "j_then_agg",
        "SELECT w.n, count(*) AS c, sum(t.b) AS sb, count(w.v) AS cv FROM t LEFT JOIN w ON t.a = w.k GROUP BY w.n",
    ),
    v("j_using", "SELECT a, t.id, u.s FROM t JOIN u USING (a)"),
    v("j_scalar", "SELECT id, b FROM t WHERE b > (SELECT avg(a) * 10 FROM u)"),
    v("j_scalar_select", "SELECT id, (SELECT max(v) FROM w) AS m FROM t"),
    v("j_correlated", "SELECT id, (SELECT count(*) FROM u WHERE u.a = t.a) AS c FROM t"),
    v("j_full_using", "SELECT a, t.id, u.s, u.d FROM t FULL JOIN u USING (a)"),
    v("j_natural", "SELECT * FROM (SELECT a, s, id FROM t) x NATURAL RIGHT JOIN (SELECT a, s, d FROM u) y"),
    v(
        "j_using_three",
        "SELECT k, x.id, y.s, w.n FROM (SELECT a AS k, id FROM t) x FULL JOIN (SELECT a AS k, s FROM u) y USING (k) FULL JOIN w USING (k)",
    ),
    v(
        "j_interval",
        "SELECT x.k, x.v, y.v AS yv FROM ev x JOIN ev y ON x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL '3 seconds' AND x.ts + INTERVAL '4 seconds'",
    ),
    v(
        "j_interval_left",
        "SELECT x.k, x.v, y.v AS yv FROM ev x LEFT JOIN ev y ON x.k = y.k AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL '6 seconds'",
    ),
    v(
        "j_interval_full",
        "SELECT x.k, x.v, y.v AS yv FROM ev x FULL JOIN ev y ON x.v = y.k AND x.ts - INTERVAL '2 seconds' < y.ts AND x.ts >= y.ts - INTERVAL '5 seconds'",
    ),
    v(
        "j_interval_theta",
        "SELECT x.v, y.v AS yv FROM ev x, ev y WHERE x.ts < y.ts AND x.ts + INTERVAL '2 seconds' >= y.ts",
    ),
    v(
        "j_interval_agg",
        "SELECT window_start, count(*) AS c FROM TUMBLE((SELECT x.ts, y.v FROM ev x JOIN ev y ON x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '4 seconds'), ts, INTERVAL '10 seconds') GROUP BY window_start",
    ),
    v("j_one_bound", "SELECT x.k, y.v FROM ev x JOIN ev y ON x.k = y.k AND y.ts < x.ts - INTERVAL '8 seconds'"),
    v(
        "s_interval",
        "SELECT k, v FROM ev x WHERE EXISTS (SELECT 1 FROM ev y WHERE y.v = x.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '7 seconds')",
    ),
    v(
        "s_not_interval",
        "SELECT k, v FROM ev x WHERE NOT EXISTS (SELECT 1 FROM ev y WHERE y.v = x.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '7 seconds')",
    ),
    // Subqueries.
    v("s_in", "SELECT id, a FROM t WHERE a IN (SELECT k FROM w)"),
    v("s_in_bag", "SELECT a, s FROM u WHERE s IN (SELECT n FROM w WHERE v > 0)"),
    v("s_not_in", "SELECT id, a FROM t WHERE a NOT IN (SELECT v FROM w)"),
    v("s_not_in_same", "SELECT a, d FROM u WHERE NOT (a IN (SELECT u.a FROM u WHERE u.d > 20))"),
    v("s_not_in_corr", "SELECT id FROM t WHERE a NOT IN (SELECT v FROM w WHERE w.n = t.s)"),
    v("s_exists", "SELECT a, s FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = u.a AND t.s = u.s)"),
    v("s_not_exists", "SELECT a, s FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = u.a)"),
    v("s_rest", "SELECT id, d FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.d)"),
    v("s_not_rest", "SELECT id, d FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.d)"),
    v("s_theta", "SELECT k, n FROM w WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a > w.v)"),
    v("s_null_safe", "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a IS NOT DISTINCT FROM t.a)"),
    v("s_expr", "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a + 1 = t.a * 2 AND t.ok)"),
    v(
        "s_mark",
        "SELECT id, a IN (SELECT k FROM w) AS i, a NOT IN (SELECT v FROM w) AS n, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e FROM t",
    ),
    v(
        "s_mark_corr",
        "SELECT a, s, a IN (SELECT w.v FROM w WHERE w.n = u.s) AS i, NOT EXISTS (SELECT 1 FROM t WHERE t.a = u.a AND t.d < u.d) AS e FROM u",
    ),
    v("s_or", "SELECT id FROM t WHERE ok OR a IN (SELECT v FROM w) OR NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)"),
    v("s_null", "SELECT id FROM t WHERE (a IN (SELECT v FROM w)) IS NULL"),
    v(
        "s_any",
        "SELECT id, a < ANY (SELECT v FROM w) AS l, a >= ALL (SELECT v FROM w WHERE w.n = t.s) AS g, a <> SOME (SELECT k FROM w) AS n FROM t",
    ),
    v("s_all", "SELECT a FROM u WHERE a <> ALL (SELECT v FROM w WHERE v IS NOT NULL)"),
    v("s_case", "SELECT id, CASE WHEN a IN (SELECT k FROM w) THEN 'in' WHEN ok THEN 'ok' END AS c FROM t"),
    v(
        "s_alone",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM w WHERE v > 3) AND NOT EXISTS (SELECT 1 FROM u WHERE a = 6)",
    ),
    v("s_agg", "SELECT a, count(*) FILTER (WHERE s IN (SELECT n FROM w)) AS c FROM u GROUP BY a"),
    v("s_group", "SELECT a IN (SELECT k FROM w) AS i, count(*) AS c, sum(b) AS s FROM t GROUP BY 1"),
    v("s_having", "SELECT a, count(*) AS c FROM u GROUP BY a HAVING count(*) IN (SELECT v FROM w)"),
    v("s_on", "SELECT t.id, u.s FROM t LEFT JOIN u ON t.a = u.a AND u.s IN (SELECT n FROM w)"),
    v("s_of_agg", "SELECT id FROM t WHERE a IN (SELECT max(a) FROM u GROUP BY s)"),
    v("s_of_max", "SELECT id FROM t WHERE b IN (SELECT max(b) FROM t y WHERE y.a = t.a)"),
    v("s_nested", "SELECT id FROM t WHERE a IN (SELECT k FROM w WHERE v IN (SELECT a FROM u WHERE u.s = w.n))"),
    v("s_two", "SELECT id FROM t WHERE a IN (SELECT k FROM w) AND s NOT IN (SELECT n FROM w WHERE v IS NULL)"),
    v("s_float", "SELECT id FROM t WHERE f IN (SELECT f FROM u)"),
    v(
        "s_union",
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a UNION ALL SELECT 1 FROM w WHERE w.n = t.s)",
    ),
    v("s_limit", "SELECT id FROM t WHERE a IN (SELECT a FROM u ORDER BY d DESC NULLS LAST LIMIT 3)"),
    v("s_ev", "SELECT k, v FROM ev x WHERE EXISTS (SELECT 1 FROM ev y WHERE y.k = x.k AND y.v > x.v)"),
    v("s_then_agg", "SELECT s, count(*) AS c FROM u WHERE a NOT IN (SELECT k FROM w) GROUP BY s"),
    v("s_single", "SELECT id, (SELECT v FROM w WHERE n = 'ab' AND k > 3) AS x FROM t"),
    v("s_single_corr", "SELECT id, (SELECT d FROM u WHERE u.a = t.a AND u.s = t.s) AS x FROM t"),
    v("s_single_where", "SELECT a, s FROM u WHERE a > (SELECT w.v FROM w WHERE w.k = u.a)"),
    v("s_single_group", "SELECT k, n, (SELECT max(f) FROM u WHERE u.a = w.k GROUP BY s) AS m FROM w"),
    v(
        "s_less",
        "SELECT id, (SELECT count(*) FROM u WHERE u.d < t.d) AS n, (SELECT max(v) FROM w WHERE w.k <> t.a) AS m FROM t",
    ),
    v("s_corr_having", "SELECT id, (SELECT sum(d) FROM u WHERE u.a = t.a HAVING count(*) > t.a) AS s FROM t"),
    v("s_corr_list", "SELECT k, n, (SELECT max(d) + w.v FROM u WHERE u.a = w.k) AS m FROM w"),
    v(
        "s_corr_groups",
        "SELECT a, s FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a >= u.a GROUP BY t.s HAVING count(*) > u.a)",
    ),
    v("s_corr_twice", "SELECT id, (SELECT max(c) FROM (SELECT count(*) AS c FROM u WHERE u.a = t.a) g) AS m FROM t"),
    // INTERSECT, EXCEPT.
    v("i_set", "SELECT a, s FROM u INTERSECT SELECT a, s FROM t"),
    v("i_bag", "SELECT a FROM u INTERSECT ALL SELECT a FROM t"),
    v("e_set", "SELECT a FROM u EXCEPT SELECT k FROM w"),
    v("e_bag", "SELECT a FROM u EXCEPT ALL SELECT a FROM t"),
    v("e_types", "SELECT d FROM u EXCEPT ALL SELECT a FROM t"),
    v("e_float", "SELECT f FROM u EXCEPT SELECT f FROM t"),
    v(
        "i_nested",
        "SELECT a, count(*) AS c FROM (SELECT a FROM u EXCEPT ALL (SELECT k FROM w INTERSECT ALL SELECT v FROM w)) x GROUP BY a",
    ),
    v("i_join", "SELECT x.a, t.id FROM (SELECT a FROM u INTERSECT SELECT v FROM w) x LEFT JOIN t ON t.a = x.a"),
    v("i_in", "SELECT id FROM t WHERE a IN (SELECT a FROM u EXCEPT SELECT v FROM w)"),
    // Union, distinct.
    v("u_all", "SELECT a, s FROM t UNION ALL SELECT a, s FROM u"),
    v("u_all_self", "SELECT a FROM u UNION ALL SELECT a FROM u UNION ALL SELECT k FROM w"),
    v("u_dist", "SELECT a, s FROM t UNION SELECT a, s FROM u"),
    v("u_types", "SELECT a AS x, d FROM t UNION ALL SELECT k, v FROM w UNION ALL SELECT b, f FROM t"),
    v(
        "u_agg",
        "SELECT k, sum(c) AS c FROM (SELECT a AS k, count(*) AS c FROM t GROUP BY a UNION ALL SELECT k, count(*) FROM w GROUP BY k) x GROUP BY k",
    ),
    v("u_const", "SELECT a, 't' AS src FROM t UNION ALL SELECT 42, 'one' UNION ALL SELECT v, n FROM w"),
    v("d_rows", "SELECT DISTINCT a, s FROM u"),
    v("d_one", "SELECT DISTINCT ok FROM t"),
    v("d_join", "SELECT DISTINCT t.a, w.n FROM t LEFT JOIN w ON t.a = w.k"),
    v("d_expr", "SELECT DISTINCT a % 3 AS m, s IS NULL AS n FROM u"),
    v("d_float", "SELECT DISTINCT f FROM u"),
    v("d_count", "SELECT count(*) AS c FROM (SELECT DISTINCT a, s FROM u) x"),
    // Top-n.
    v("n_top", "SELECT id, b FROM t ORDER BY b DESC LIMIT 5"),
    v("n_ties", "SELECT a, s FROM u ORDER BY a LIMIT 7"),
    v("n_offset", "SELECT id, a, s FROM t ORDER BY a, s DESC LIMIT 4 OFFSET 3"),
    v("n_nulls_first", "SELECT id, d FROM t ORDER BY d NULLS FIRST, id LIMIT 6"),
    v("n_nulls_last", "SELECT id, d FROM t ORDER BY d DESC NULLS LAST, id LIMIT 6"),
    v("n_desc", "SELECT a, f FROM u ORDER BY f DESC LIMIT 3"),
    v("n_only_offset", "SELECT id FROM t ORDER BY id OFFSET 10"),
    v("n_no_order", "SELECT a, s FROM u LIMIT 4"),
    v("n_zero", "SELECT a FROM u ORDER BY a LIMIT 0"),
    v("n_one", "SELECT s, ts FROM u ORDER BY ts DESC NULLS LAST LIMIT 1"),
    v("n_dups", "SELECT a FROM u ORDER BY a DESC NULLS LAST LIMIT 5 OFFSET 2"),
    v("n_agg", "SELECT a, sum(b) AS sb FROM t GROUP BY a ORDER BY sb DESC NULLS LAST LIMIT 3"),
    v("n_sub", "SELECT x.a, count(*) AS c FROM (SELECT * FROM t ORDER BY b DESC, id LIMIT 8) x GROUP BY x.a"),
    v("n_expr", "SELECT id FROM t ORDER BY abs(a), length(s) DESC, id LIMIT 5"),
    v("n_union", "SELECT * FROM (SELECT a FROM t UNION ALL SELECT a FROM u) x ORDER BY a DESC LIMIT 6"),
    // Windows.
    v(
        "w_tumble",
        "SELECT window_start, window_end, count(*) AS c, sum(v) AS s FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end",
    ),
    v(
        "w_tumble_key",
        "SELECT k, window_start, max(v) AS m FROM TUMBLE(ev, ts, INTERVAL '20 seconds') GROUP BY k, window_start",
    ),
    v(
        "w_tumble_offset",
        "SELECT window_start, count(*) AS c FROM TUMBLE(u, ts, INTERVAL '1 minute', INTERVAL '7 seconds') GROUP BY window_start",
    ),
    v(
        "w_hop",
        "SELECT window_start, window_end, count(*) AS c, avg(v) AS m FROM HOP(ev, ts, INTERVAL '5 seconds', INTERVAL '15 seconds') GROUP BY window_start, window_end",
    ),
    v(
        "w_hop_table",
        "SELECT window_end, sum(d) AS s, count(DISTINCT a) AS ca FROM HOP(u, ts, INTERVAL '30 seconds', INTERVAL '1 minute') GROUP BY window_end",
    ),
    v("w_rows", "SELECT a, ts, window_start, window_end FROM TUMBLE(u, ts, INTERVAL '45 seconds')"),
    v(
        "w_join",
        "SELECT x.window_start, x.c, y.c AS d FROM (SELECT window_start, count(*) AS c FROM TUMBLE(t, ts, INTERVAL '1 minute') GROUP BY window_start) x FULL JOIN (SELECT window_start, count(*) AS c FROM TUMBLE(u, ts, INTERVAL '1 minute') GROUP BY window_start) y ON x.window_start = y.window_start",
    ),
    v(
        "w_tumble_rows",
        "SELECT window_start, array_agg(v) AS x, median(k) AS m, last_value(v ORDER BY ts) AS l FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start",
    ),
    v(
        "w_close",
        "SELECT window_start, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_hop_offset",
        "SELECT window_start, count(*) AS c FROM HOP(u, ts, INTERVAL '7 seconds', INTERVAL '30 seconds', INTERVAL '2 seconds') GROUP BY window_start",
    ),
    v(
        "w_cumulate",
        "SELECT window_start, window_end, count(*) AS c, sum(v) AS s FROM CUMULATE(ev, ts, INTERVAL '5 seconds', INTERVAL '20 seconds') GROUP BY window_start, window_end",
    ),
    v(
        "w_cumulate_table",
        "SELECT window_end, count(*) AS c, max(d) AS m FROM CUMULATE(TABLE u, DESCRIPTOR(ts), INTERVAL '20 seconds', INTERVAL '1 minute', INTERVAL '3 seconds') GROUP BY window_end",
    ),
    v("w_session", "SELECT * FROM SESSION(u, ts, INTERVAL '5 seconds')"),
    v(
        "w_session_key",
        "SELECT a, window_start, window_end, count(*) AS c, sum(d) AS s FROM SESSION(u PARTITION BY a, ts, INTERVAL '20 seconds') GROUP BY a, window_start, window_end",
    ),
    v(
        "w_session_keys",
        "SELECT a, ok, ts, window_end, id FROM SESSION(TABLE t PARTITION BY (ok, a), DESCRIPTOR(ts), INTERVAL '1 minute') WHERE id > 2",
    ),
    v(
        "w_session_ev",
        "SELECT k, window_start, window_end, count(*) AS c, max(v) AS m FROM SESSION(ev PARTITION BY k, ts, INTERVAL '3 seconds') GROUP BY k, window_start, window_end",
    ),
    v(
        "w_session_close",
        "SELECT k, window_start, window_end, count(*) AS c FROM SESSION(ev PARTITION BY k, ts, INTERVAL '4 seconds') GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_session_rows_close",
        "SELECT k, v, window_end FROM SESSION(ev, ts, INTERVAL '2 seconds') EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_over_close",
        "SELECT k, v, window_end, sum(v) OVER (PARTITION BY window_end, k ORDER BY ts, v) AS s, lag(v) OVER (PARTITION BY window_end, k ORDER BY ts, v) AS l FROM TUMBLE(ev, ts, INTERVAL '10 seconds') EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_top_close",
        "SELECT k, v, window_start, rn FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY v DESC, k) AS rn FROM HOP(ev, ts, INTERVAL '5 seconds', INTERVAL '10 seconds')) x WHERE rn <= 2 EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_top_agg_close",
        "SELECT k, c, window_end FROM (SELECT k, window_end, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY k, window_end) x QUALIFY rank() OVER (PARTITION BY window_end ORDER BY c DESC) = 1 EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_join_close",
        "SELECT x.k, x.v, y.c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') x LEFT JOIN (SELECT k, window_end, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') WHERE v > 3 GROUP BY k, window_end) y ON x.k = y.k AND x.window_end = y.window_end EMIT ON WINDOW CLOSE",
    ),
    v(
        "w_over_window",
        "SELECT k, v, rank() OVER (PARTITION BY window_end ORDER BY v) AS r FROM TUMBLE(ev, ts, INTERVAL '10 seconds')",
    ),
    v("w_ev_join", "SELECT x.k, x.v, y.v AS yv FROM ev x JOIN ev y ON x.ts = y.ts AND x.k = y.k"),
    v("w_ev_agg", "SELECT ts, count(*) AS c FROM ev GROUP BY ts"),
    v("w_ev_distinct", "SELECT DISTINCT k, v FROM ev"),
    v("w_ev_max", "SELECT k, min(v) AS n, max(v) AS x, count(DISTINCT v) AS d FROM ev GROUP BY k"),
    // Sub-selects and CTEs.
    v(
        "c_cte",
        "WITH x AS (SELECT a, sum(b) AS sb FROM t GROUP BY a), y AS (SELECT a, count(*) AS c FROM u GROUP BY a) SELECT x.a, sb, c FROM x LEFT JOIN y ON x.a = y.a",
    ),
    v(
        "c_twice",
        "WITH x AS (SELECT a, count(*) AS c FROM t GROUP BY a) SELECT p.a, p.c, q.a AS qa FROM x p JOIN x q ON p.c = q.c AND p.a < q.a",
    ),
    v(
        "c_nested",
        "SELECT * FROM (SELECT a, b2 FROM (SELECT a, b * 2 AS b2 FROM t WHERE ok) x WHERE b2 > 10) y WHERE a IS NOT NULL",
    ),
    v(
        "c_values",
        "SELECT t.id, x.name FROM t LEFT JOIN (VALUES (1, 'one'), (2, 'two'), (3, NULL)) AS x (k, name) ON t.a = x.k",
    ),
    v("c_const", "SELECT 1 AS a, 'x' AS b, NULL AS c"),
    v("x_not_distinct", "SELECT id, a IS DISTINCT FROM 3 AND ok AS d, a IS NOT DISTINCT FROM b OR ok AS n FROM t"),
    v("x_unnest", "SELECT id, unnest(make_array(a, a + 1, NULL)) AS e FROM t"),
    v("x_array", "SELECT s, count(*) AS c FROM (SELECT make_array(a, a % 2) AS s FROM u) x GROUP BY s"),
    v("x_array_distinct", "SELECT DISTINCT make_array(a, a % 2) AS l FROM u"),
    v(
        "x_array_join",
        "SELECT x.id, y.s FROM (SELECT id, make_array(a) AS l FROM t) x JOIN (SELECT s, make_array(a) AS l FROM u) y ON x.l = y.l",
    ),
    v(
        "x_date",
        "SELECT CAST(ts AS date) AS d, count(*) AS c, max(ts - INTERVAL '1 day') AS m FROM u GROUP BY CAST(ts AS date)",
    ),
    v("x_tz", "SELECT CAST(ts AS timestamptz) AS z, count(*) AS c FROM u GROUP BY 1"),
    v("x_real", "SELECT CAST(f AS real) AS r, sum(CAST(f AS real)) AS s, min(CAST(f AS real)) AS n FROM u GROUP BY 1"),
    v(
        "x_small",
        "SELECT CAST(a AS smallint) AS x, sum(CAST(a AS smallint)) AS s, avg(CAST(a AS smallint)) AS m FROM u GROUP BY 1",
    ),
    v(
        "x_interval",
        "SELECT id, ts - TIMESTAMP '2024-01-01 00:00:00' AS i FROM t WHERE ts < '2025-01-01' AND ts > '2000-01-01'",
    ),
    v("x_min_interval", "SELECT count(*) AS c FROM t WHERE ts + INTERVAL '1 second' > TIMESTAMP '2024-01-01 00:01:00'"),
    v("x_many_keys", "SELECT a, s, d, f, ts, count(*) AS c FROM u GROUP BY a, s, d, f, ts"),
    v(
        "x_many_aggs",
        "SELECT count(*) AS a0, sum(a) AS a1, sum(DISTINCT a) AS a2, min(a) AS a3, max(a) AS a4, avg(a) AS a5, count(a) AS a6, count(DISTINCT a) AS a7, sum(d) AS a8, sum(DISTINCT d) AS a9, min(s) AS b0, max(s) AS b1, count(DISTINCT s) AS b2, min(ts) AS b3, avg(d) AS b4, max(f) AS b5 FROM u GROUP BY a % 3",
    ),
    v(
        "x_left_chain",
        "SELECT p.id, q.id AS qid, r.id AS rid FROM t p LEFT JOIN t q ON p.a = q.id LEFT JOIN t r ON q.a = r.id",
    ),
    v("x_full_chain", "SELECT t.id, u.s, w.v FROM t FULL JOIN u ON t.a = u.a FULL JOIN w ON u.a = w.k"),
    v(
        "x_right_of_agg",
        "SELECT y.k, y.c, t.id FROM t RIGHT JOIN (SELECT k, count(*) AS c FROM w GROUP BY k) y ON t.a = y.k AND t.id < 30",
    ),
    v(
        "x_join_top",
        "SELECT t.id, x.v FROM t LEFT JOIN (SELECT k, v FROM w ORDER BY v DESC NULLS LAST, k LIMIT 4) x ON t.a = x.k",
    ),
    v("x_top_of_join", "SELECT t.id, w.v FROM t JOIN w ON t.a = w.k ORDER BY w.v DESC NULLS LAST, t.id LIMIT 6"),
    v("x_distinct_top", "SELECT DISTINCT a FROM (SELECT a, s FROM u ORDER BY s, a LIMIT 9) x"),
    v("x_union_join", "SELECT x.k, t.id FROM (SELECT a AS k FROM u UNION SELECT k FROM w) x LEFT JOIN t ON x.k = t.a"),
    v("x_two_scalars", "SELECT id FROM t WHERE a > (SELECT min(a) FROM u) AND a < (SELECT max(v) FROM w)"),
    v("x_correlated_max", "SELECT id, b FROM t WHERE b = (SELECT max(b) FROM t y WHERE y.a = t.a)"),
    v("x_correlated_sum", "SELECT k, n, (SELECT sum(d) FROM u WHERE u.a = w.k AND u.s = w.n) AS s FROM w"),
    v("x_lateral", "SELECT t.id, x.c FROM t CROSS JOIN LATERAL (SELECT count(*) AS c FROM w WHERE w.k = t.a) x"),
    v(
        "x_cross3",
        "SELECT p.c, q.c AS d, r.m FROM (SELECT count(*) AS c FROM t) p CROSS JOIN (SELECT count(*) AS c FROM u) q CROSS JOIN (SELECT max(v) AS m FROM w) r",
    ),
    v("x_regexp", "SELECT id, s FROM t WHERE s ~ '^[a-z]+$' OR s SIMILAR TO '(x|y)%'"),
    v("x_concat_null", "SELECT id, s || CAST(a AS text) AS c, concat_ws('-', s, CAST(a AS text)) AS w FROM t"),
    v(
        "x_greatest",
        "SELECT id, greatest(a, id) AS g, least(a, id) AS l, round(d, 1) AS r, floor(f) AS fl, power(a, 2) AS p, sqrt(f) AS q FROM t",
    ),
    v("x_decimal_ops", "SELECT id, d / 3 AS q, d * 1.5 AS m, d + a AS p, d % 2 AS r, CAST(d AS int) AS i FROM t"),
    v(
        "x_hop_join",
        "SELECT h.window_start, h.a, t.id FROM HOP(u, ts, INTERVAL '20 seconds', INTERVAL '40 seconds') h JOIN t ON h.a = t.a",
    ),
    v(
        "x_ev_two_windows",
        "SELECT x.window_start, x.c, y.m FROM (SELECT window_start, count(*) AS c FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start) x JOIN (SELECT window_start, max(v) AS m FROM TUMBLE(ev, ts, INTERVAL '10 seconds') GROUP BY window_start) y ON x.window_start = y.window_start",
    ),
    v("x_ev_left", "SELECT e.k, e.v, w.n FROM ev e LEFT JOIN w ON e.k = w.k"),
    v("x_ev_top", "SELECT ts, k, v FROM ev ORDER BY ts DESC NULLS LAST, k LIMIT 5"),
    // Window functions.
    v(
        "o_places",
        "SELECT id, a, row_number() OVER w AS rn, rank() OVER w AS r, dense_rank() OVER w AS d, percent_rank() OVER w AS p, cume_dist() OVER w AS c, ntile(3) OVER w AS n FROM t WINDOW w AS (PARTITION BY a ORDER BY s)",
    ),
    v(
        "o_places_bag",
        "SELECT a, s, row_number() OVER w AS rn, rank() OVER w AS r, lag(s) OVER w AS p, lead(d, 2) OVER w AS n FROM u WINDOW w AS (PARTITION BY a ORDER BY ts DESC)",
    ),
    v(
        "o_all",
        "SELECT a, f, row_number() OVER (ORDER BY f DESC NULLS LAST) AS rn, ntile(4) OVER (ORDER BY d) AS q FROM u",
    ),
    v(
        "o_ends",
        "SELECT id, first_value(b) OVER w AS a, last_value(b) OVER w AS z, nth_value(s, 2) OVER w AS n, last_value(d) IGNORE NULLS OVER w AS i FROM t WINDOW w AS (PARTITION BY ok ORDER BY a)",
    ),
    v(
        "o_ends_rows",
        "SELECT a, s, first_value(d) OVER w AS x, last_value(f) OVER w AS z FROM u WINDOW w AS (ORDER BY a, s ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    ),
    v(
        "o_sums",
        "SELECT id, sum(b) OVER (PARTITION BY a ORDER BY id) AS s, sum(f) OVER (ORDER BY id ROWS 3 PRECEDING) AS sf, avg(d) OVER (ORDER BY b ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS ad, min(s) OVER (ORDER BY id ROWS 2 PRECEDING) AS m, count(*) OVER () AS c FROM t",
    ),
    v(
        "o_ranges",
        "SELECT a, d, count(*) OVER (ORDER BY a RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS c, max(d) OVER (ORDER BY a DESC RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) AS x, sum(f) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '20 seconds' PRECEDING AND CURRENT ROW) AS l FROM u",
    ),
    v(
        "o_groups",
        "SELECT a, s, count(*) OVER (ORDER BY s GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c, array_agg(a) OVER (ORDER BY s GROUPS CURRENT ROW) AS l FROM u",
    ),
    v(
        "o_distinct",
        "SELECT id, count(DISTINCT s) OVER (PARTITION BY a) AS c, sum(DISTINCT b) FILTER (WHERE ok) OVER (ORDER BY id ROWS 4 PRECEDING) AS s, string_agg(s, ',') OVER (ORDER BY a) AS l FROM t",
    ),
    v(
        "o_stats",
        "SELECT a, stddev(f) OVER (ORDER BY a) AS sd, median(d) OVER (PARTITION BY s) AS m, bool_or(a > 2) OVER (ORDER BY d ROWS 3 PRECEDING) AS b, corr(a, f) OVER () AS c FROM u WHERE abs(f) < 1e6",
    ),
    v(
        "o_two",
        "SELECT a, s, row_number() OVER (ORDER BY a) AS n, lead(s) OVER (PARTITION BY a ORDER BY d) AS e, count(*) OVER (PARTITION BY f) AS c FROM u",
    ),
    v("o_float", "SELECT f, rank() OVER (ORDER BY f) AS r, count(*) OVER (PARTITION BY f) AS c FROM u"),
    v(
        "o_qualify",
        "SELECT id, b FROM t QUALIFY sum(b) OVER (ORDER BY id) < 200 AND rank() OVER (PARTITION BY a ORDER BY b) > 1",
    ),
    v(
        "o_agg",
        "SELECT a, c, rank() OVER (ORDER BY c DESC) AS r, sum(c) OVER (ORDER BY a) AS upto, c - lag(c) OVER (ORDER BY a) AS d FROM (SELECT a, count(*) AS c FROM u GROUP BY a) x",
    ),
    v(
        "o_then_join",
        "SELECT x.id, x.rn, w.n FROM (SELECT id, a, row_number() OVER (PARTITION BY a ORDER BY b DESC) AS rn FROM t) x LEFT JOIN w ON x.rn = w.k",
    ),
    v(
        "o_ev",
        "SELECT ts, k, v, v - lag(v) OVER (PARTITION BY k ORDER BY ts) AS d, sum(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM ev",
    ),
    v(
        "o_div",
        "SELECT id, sum(b / a) OVER (PARTITION BY s ORDER BY id) AS q, lag(a, 1, 7) OVER (ORDER BY b / a, id) AS l FROM t",
    ),
    // Top-n per group.
    v(
        "gn_two",
        "SELECT id, a, b FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY b DESC) AS rn FROM t) x WHERE rn <= 2",
    ),
    v("gn_number", "SELECT a, s, row_number() OVER (PARTITION BY a ORDER BY d) AS rn FROM u QUALIFY rn < 4"),
    v("gn_rank", "SELECT a, s, d FROM u QUALIFY rank() OVER (PARTITION BY s ORDER BY a DESC NULLS LAST) <= 2"),
    v("gn_rank_number", "SELECT id, rank() OVER (PARTITION BY ok ORDER BY a) AS r FROM t QUALIFY r <= 3 AND b > 10"),
    v("gn_dense", "SELECT a, f, dense_rank() OVER (ORDER BY f) AS r FROM u QUALIFY r <= 3"),
    v("gn_second", "SELECT id, s FROM t QUALIFY row_number() OVER (PARTITION BY s ORDER BY f, d) = 2"),
    v("gn_ev", "SELECT k, v, ts FROM ev QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 3"),
    v("gn_ev_rank", "SELECT k, ts FROM ev QUALIFY rank() OVER (PARTITION BY k ORDER BY ts) <= 2"),
    v(
        "gn_agg",
        "SELECT a, max(b) AS m FROM (SELECT a, b, row_number() OVER (PARTITION BY ok ORDER BY id) AS rn FROM t) x WHERE rn <= 4 GROUP BY a",
    ),
    v("dn_key", "SELECT DISTINCT ON (a) a, id, s FROM t ORDER BY a, b DESC"),
    v("dn_bag", "SELECT DISTINCT ON (a, s) a, s, d, f FROM u"),
    v("dn_expr", "SELECT DISTINCT ON (a % 3) a % 3 AS m, f FROM u ORDER BY a % 3, f DESC NULLS LAST"),
    v("dn_ev", "SELECT DISTINCT ON (k) k, ts, v FROM ev ORDER BY k, ts DESC"),
    // Rows from lists, and from rows found before.
    v("l_unnest", "SELECT id, e FROM t, unnest(make_array(a, b % 3, NULL)) AS e"),
    v("l_left", "SELECT t.id, e FROM t LEFT JOIN unnest(string_to_array(s, ' ')) AS e ON true"),
    v("l_series", "SELECT u.a, g FROM u, generate_series(1, u.a % 4) AS g"),
    v(
        "l_ordinality",
        "SELECT id, e, n FROM t CROSS JOIN LATERAL unnest(make_array(s, 'x')) WITH ORDINALITY AS x(e, n) WHERE e > 'a'",
    ),
    v("l_constant", "SELECT g, count(t.id) AS c FROM generate_series(0, 5) AS g LEFT JOIN t ON t.a = g GROUP BY g"),
    v(
        "r_reach",
        "WITH RECURSIVE r AS (SELECT id, a FROM t WHERE ok UNION SELECT r.id, t.a FROM r JOIN t ON r.a = t.id) SELECT * FROM r",
    ),
    v(
        "r_paths",
        "WITH RECURSIVE p AS (SELECT a, s, 0 AS n FROM u WHERE a < 3 UNION ALL SELECT w.v % 5, p.s, p.n + 1 FROM p JOIN w ON p.a = w.k WHERE p.n < 3) SELECT * FROM p",
    ),
    v(
        "r_left",
        "WITH RECURSIVE p AS (SELECT k, n, 0 AS depth FROM w UNION ALL SELECT x.k, p.n || coalesce(x.n, '-'), depth + 1 FROM p LEFT JOIN (SELECT k, n FROM w WHERE v > 3) x ON p.k + 1 = x.k WHERE depth < 2) SELECT depth, count(*) AS c, max(n) AS m FROM p GROUP BY depth",
    ),
    v(
        "r_numbers",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT n.i, t.id FROM n LEFT JOIN t ON t.a = n.i",
    ),
    // Temporal filters; no time of the data is near the present.
    v("t_recent", "SELECT id, ts FROM t WHERE ts > now() - INTERVAL '100 days'"),
    v("t_past", "SELECT a, ts, f FROM u WHERE ts BETWEEN now() - INTERVAL '20000 days' AND now() AND a IS NOT NULL"),
    v("t_agg", "SELECT a, count(*) AS c FROM (SELECT a, ts FROM u WHERE ts + INTERVAL '1 day' <= now()) x GROUP BY a"),
    v("t_join", "SELECT t.id, u.s FROM t JOIN u ON t.a = u.a AND u.ts < now() - INTERVAL '1 hour'"),
    v("t_pair", "SELECT t.id, u.s FROM t JOIN u ON t.a = u.a WHERE greatest(t.ts, u.ts) < now() - INTERVAL '5 days'"),
    v("t_left", "SELECT t.id, u.s FROM t LEFT JOIN u ON t.a = u.a WHERE t.ts <= now() AND (u.a IS NULL OR u.a > 1)"),
    v("t_ev", "SELECT k, v FROM ev WHERE now() > ts"),
    // Nearest in time.
    v(
        "a_last",
        "SELECT t.id, t.ts, u.s, u.d, u.ts AS at FROM t ASOF JOIN u MATCH_CONDITION (t.ts >= u.ts) ON t.a = u.a",
    ),
    v("a_before", "SELECT t.id, u.s, u.f FROM t ASOF LEFT JOIN u MATCH_CONDITION (u.ts < t.ts) ON t.s = u.s"),
    v("a_next", "SELECT u.a, u.s, t.id FROM u ASOF LEFT JOIN t MATCH_CONDITION (u.ts <= t.ts) ON u.a = t.a"),
    v("a_number", "SELECT t.id, t.a, w.k, w.n FROM t ASOF LEFT JOIN w MATCH_CONDITION (t.a < w.k)"),
    v(
        "a_two",
        "SELECT t.id, u.s, w.n FROM t ASOF LEFT JOIN u MATCH_CONDITION (t.ts > u.ts) ON t.a = u.a AND t.s = u.s ASOF LEFT JOIN w MATCH_CONDITION (t.b >= w.n) ON w.k = u.a",
    ),
    v(
        "a_agg",
        "SELECT u.s, count(*) AS c, count(x.c) AS n FROM u ASOF LEFT JOIN (SELECT a, max(ts) AS ts, count(*) AS c FROM t GROUP BY a) x MATCH_CONDITION (u.ts >= x.ts) ON u.a = x.a GROUP BY u.s",
    ),
    v(
        "a_last_close",
        "SELECT a.k, a.v, b.k AS o FROM ev a ASOF LEFT JOIN ev b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.v EMIT ON WINDOW CLOSE",
    ),
    v(
        "a_next_close",
        "SELECT a.k, a.v, b.v AS o FROM ev a ASOF JOIN ev b MATCH_CONDITION (a.ts < b.ts) ON a.k = b.k EMIT ON WINDOW CLOSE",
    ),
    v("a_ev", "SELECT a.k, a.v, b.v AS o FROM ev a ASOF JOIN ev b MATCH_CONDITION (a.ts <= b.ts) ON a.k = b.v"),
    v(
        "a_ev_last",
        "SELECT a.k, a.v, b.v AS o FROM ev a ASOF LEFT JOIN ev b MATCH_CONDITION (a.ts > b.ts) ON a.v = b.v",
    ),
    v(
        "u_windows_close",
        "SELECT DISTINCT window_end, k FROM HOP(ev, ts, INTERVAL '5 seconds', INTERVAL '10 seconds') EMIT ON WINDOW CLOSE",
    ),
    // Views on views on views.
    on("v1", &["g_sum"], "SELECT a, sb, sd FROM g_sum WHERE sb IS NOT NULL"),
    on("v2", &["v1"], "SELECT v1.a, v1.sb, w.n FROM v1 LEFT JOIN w ON v1.a = w.k"),
    on("v3", &["v2"], "SELECT n, count(*) AS c, sum(sb) AS s FROM v2 GROUP BY n"),
    on("v_top", &["v3"], "SELECT * FROM v3 ORDER BY c DESC, n LIMIT 2"),
    on("v_union", &["d_rows", "u_dist"], "SELECT a, s FROM d_rows UNION ALL SELECT a, s FROM u_dist"),
    on("v_self", &["g_count"], "SELECT x.a, y.c FROM g_count x JOIN g_count y ON x.c = y.c"),
    on("v_diamond", &["g_count", "g_sum"], "SELECT p.a, p.c, q.sb FROM g_count p FULL JOIN g_sum q ON p.a = q.a"),
    on("v_of_join", &["j_full"], "SELECT count(*) AS c, count(id) AS ci, count(k) AS ck FROM j_full"),
    on("v_of_top", &["n_top"], "SELECT min(b) AS least FROM n_top"),
    on("v_of_window", &["w_tumble"], "SELECT sum(c) AS c, max(window_end) AS e FROM w_tumble"),
];

/// The views chosen by `pick` and all that they read, in an order in which they can be made.
pub fn closure(mut pick: impl FnMut(&View) -> bool) -> Vec<View> {
    let mut wanted: std::collections::BTreeSet<&str> = VIEWS.iter().filter(|v| pick(v)).map(|v| v.name).collect();
    for view in VIEWS.iter().rev() {
        if wanted.contains(view.name) {
            wanted.extend(view.reads);
        }
    }
    VIEWS.iter().filter(|v| wanted.contains(v.name)).copied().collect()
}
