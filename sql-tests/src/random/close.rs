//! Queries over event time that wait for their windows: EMIT ON WINDOW CLOSE.

use super::{Col, Queries, Ty};

impl Queries {
    /// A relation of windows over `ev`, with its alias.
    fn windows(&mut self) -> (String, String) {
        let alias = self.name("x");
        let from = match self.below(3) {
            0 => format!("(SELECT * FROM ev WHERE v > {})", self.below(4)),
            _ => "ev".to_owned(),
        };
        let of = match self.below(3) {
            0 => format!("HOP({from}, ts, INTERVAL '5 seconds', INTERVAL '{} seconds')", self.pick(&[5, 10, 12])),
            1 => format!("TUMBLE({from}, ts, INTERVAL '10 seconds', INTERVAL '{} seconds')", self.pick(&[3, 7])),
            _ => format!("TUMBLE({from}, ts, INTERVAL '{} seconds')", self.pick(&[4, 10, 15])),
        };
        (format!("{of} {alias}"), alias)
    }

    fn bound(&mut self) -> &'static str {
        if self.chance(50) { "window_start" } else { "window_end" }
    }

    /// A query that can wait, without saying so.
    pub(super) fn closing(&mut self) -> String {
        let (from, x) = self.windows();
        let bound = self.bound();
        match self.below(9) {
            0 | 1 => {
                let columns = [("ts", Ty::Ts), ("k", Ty::Int), ("v", Ty::Int)];
                let cols: Vec<Col> = columns.iter().map(|(n, ty)| Col { name: format!("{x}.{n}"), ty: *ty }).collect();
                let (a, b) = (self.aggregate_call(&cols).0, self.aggregate_call(&cols).0);
                let having = if self.chance(30) { " HAVING count(*) > 1" } else { "" };
                let key = *self.pick(&["", ", k", ", k, window_start"]);
                let more = if key.is_empty() { "" } else { ", k" };
                format!("SELECT {bound} AS w{more}, {a} AS a, {b} AS b FROM {from} GROUP BY {bound}{key}{having}")
            }
            2 => {
                let other = self.windows().0;
                match self.below(2) {
                    // Of windows of two lengths only the ends say when both are over.
                    0 => format!("SELECT window_end, k FROM {from} UNION SELECT window_end, v FROM {other}"),
                    _ => format!("SELECT DISTINCT {bound}, k % 2 AS p FROM {from}"),
                }
            }
            3 => format!(
                "SELECT k, v, sum(v) OVER w AS s, count(*) OVER w AS c, lag(v) OVER w AS l FROM {from} WINDOW w AS (PARTITION BY {bound} ORDER BY ts, k, v)"
            ),
            4 => {
                let rank = *self.pick(&["row_number", "rank", "dense_rank"]);
                let n = 1 + self.below(3);
                format!(
                    "SELECT k, v, {bound} FROM {from} QUALIFY {rank}() OVER (PARTITION BY {bound} ORDER BY v DESC, k) <= {n}"
                )
            }
            5 => {
                let (other, y) = self.windows();
                let kind = *self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                // Ends are ends of any windows; starts tell how long the windows are.
                format!(
                    "SELECT {x}.k, {x}.v, {y}.v AS o FROM {from} {kind} {other} ON {x}.k = {y}.k AND {x}.window_end = {y}.window_end"
                )
            }
            6 => {
                let (least, most) = (self.below(5), self.below(5));
                let kind = *self.pick(&["JOIN", "LEFT JOIN", "FULL JOIN"]);
                format!(
                    "SELECT a.k, a.v, b.v AS o FROM ev a {kind} ev b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '{least} seconds' AND a.ts + INTERVAL '{most} seconds'"
                )
            }
            7 => {
                let kind = *self.pick(&["ASOF JOIN", "ASOF LEFT JOIN"]);
                let op = *self.pick(&[">=", ">", "<=", "<"]);
                let on = *self.pick(&["", " ON a.k = b.k", " ON a.k = b.v"]);
                let pair = format!("ev a {kind} ev b MATCH_CONDITION (a.ts {op} b.ts){on}");
                if op.starts_with('>') && self.chance(40) {
                    return format!(
                        "SELECT window_end, count(*) AS n, sum(o) AS s FROM TUMBLE((SELECT a.ts, b.v AS o FROM {pair}), ts, INTERVAL '10 seconds') GROUP BY window_end"
                    );
                }
                format!("SELECT a.k, a.v, b.v AS o FROM {pair}")
            }
            _ => {
                let gap = 1 + self.below(5);
                format!(
                    "SELECT k, window_start, window_end, count(*) AS n, max(v) AS m FROM SESSION(ev PARTITION BY k, ts, INTERVAL '{gap} seconds') GROUP BY k, window_start, window_end"
                )
            }
        }
    }
}
