//! Window functions, and the patterns of top-n per group.

use super::{Col, From, Made, Queries, Ty};

impl Queries {
    /// A SELECT with window functions over a relation.
    pub(super) fn over(&mut self, from: &From, filter: &str) -> Made {
        let (mut list, mut cols) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.below(2) {
            let ty = self.pick(&from.cols).ty;
            let e = self.expr(ty, &from.cols, 1);
            let name = self.name("c");
            list.push(format!("{e} AS {name}"));
            cols.push(Col { name, ty });
        }
        let pattern = self.chance(35);
        let n = if pattern { 1 } else { 1 + self.below(2) };
        for _ in 0..n {
            let (call, ty) = self.window_call(&from.cols, pattern);
            let name = self.name("c");
            list.push(format!("{call} AS {name}"));
            cols.push(Col { name, ty });
        }
        let sql = format!("SELECT {} FROM {}{filter}", list.join(", "), from.sql);
        if !pattern {
            return Made { sql, cols };
        }
        let Some(place) = cols.last().map(|c| c.name.clone()) else { return Made { sql, cols } };
        let alias = self.name("x");
        let limit = 1 + self.below(3);
        let op = *self.pick(&["<=", "<=", "="]);
        Made { sql: format!("SELECT * FROM ({sql}) {alias} WHERE {place} {op} {limit}"), cols }
    }

    /// A call with its OVER clause; `rank`: one that numbers rows.
    fn window_call(&mut self, cols: &[Col], rank: bool) -> (String, Ty) {
        let mut window = Vec::new();
        if self.chance(75) {
            let ty = self.some_type();
            window.push(format!("PARTITION BY {}", self.expr(ty, cols, 0)));
        }
        let order = self.pick(cols).name.clone();
        let direction = *self.pick(&["", " DESC", " NULLS FIRST"]);
        let ordered = rank || self.chance(80);
        if ordered {
            window.push(format!("ORDER BY {order}{direction}"));
        }
        let choice = if rank { self.below(3) } else { self.below(9) };
        let value_ty = self.pick(cols).ty;
        let value = self.expr(value_ty, cols, 0);
        let (call, ty, framed) = match choice {
            0 => ("row_number()".to_owned(), Ty::Any, false),
            1 => ("rank()".to_owned(), Ty::Any, false),
            2 => ("dense_rank()".to_owned(), Ty::Any, false),
            3 => (format!("lag({value})"), value_ty, false),
            4 => (format!("lead({value}, 2)"), value_ty, false),
            5 => {
                let e = self.expr(Ty::Int, cols, 0);
                (format!("sum({e})"), Ty::Big, true)
            }
            6 => (format!("count({value})"), Ty::Big, true),
            7 => (format!("max({value})"), value_ty, true),
            _ => (format!("first_value({value})"), value_ty, true),
        };
        if framed && ordered && self.chance(50) {
            window.push(
                self.pick(&[
                    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
                    "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
                    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
                ])
                .to_string(),
            );
        }
        (format!("{call} OVER ({})", window.join(" ")), ty)
    }
}
