//! Expressions, predicates and aggregate calls.

use rand::Rng;

use super::{Col, Queries, Ty};

const ALL: &[Ty] = &[Ty::Int, Ty::Big, Ty::Text, Ty::Dec, Ty::Float, Ty::Ts, Ty::Bool];

impl Queries {
    pub(super) fn literal(&mut self, ty: Ty) -> String {
        match ty {
            Ty::Int => self.rng.random_range(-3..7).to_string(),
            Ty::Big => format!("{}::bigint", self.rng.random_range(-50..1000)),
            Ty::Text => self.pick(&["'a'", "''", "'ab'", "'A'", "'日本'", "'x y'"]).to_string(),
            Ty::Dec => format!("'{}.25'::numeric(12,2)", self.rng.random_range(-5..20)),
            Ty::Float => format!("{}.5::double precision", self.rng.random_range(0..20)),
            Ty::Ts => format!("timestamp '2024-01-01 00:0{}:{:02}'", self.below(4), self.below(60)),
            Ty::Bool => self.pick(&["true", "false"]).to_string(),
            Ty::Uuid => format!("'0000000000000000000000000000000{}'::uuid", self.below(8)),
            Ty::Json => match self.below(4) {
                0 => "'{\"s\": \"a\", \"k\": 1.0}'::jsonb".into(),
                1 => "'[1, null, {\"k\": []}]'::jsonb".into(),
                2 => "'null'::jsonb".into(),
                _ => format!("'{}'::jsonb", self.below(3)),
            },
            Ty::Any => "NULL".into(),
        }
    }

    fn column(&mut self, ty: Ty, cols: &[Col]) -> Option<String> {
        let fit: Vec<&Col> = cols.iter().filter(|c| c.ty == ty).collect();
        if fit.is_empty() { None } else { Some(self.pick(&fit).name.clone()) }
    }

    /// An expression of a type over some columns.
    pub(super) fn expr(&mut self, ty: Ty, cols: &[Col], depth: usize) -> String {
        let column = self.column(ty, cols);
        if ty == Ty::Any {
            return column.unwrap_or_else(|| "NULL".into());
        }
        if depth == 0 || self.chance(55) {
            return match column {
                Some(c) => c,
                None => self.literal(ty),
            };
        }
        let d = depth - 1;
        match self.below(10) {
            0 => {
                let (p, a, b) = (self.predicate(cols, d), self.expr(ty, cols, d), self.expr(ty, cols, d));
                return format!("CASE WHEN {p} THEN {a} ELSE {b} END");
            }
            1 => {
                let (a, b) = (self.expr(ty, cols, d), self.literal(ty));
                return format!("coalesce({a}, {b})");
            }
            2 => {
                let (a, b) = (self.expr(ty, cols, d), self.literal(ty));
                return format!("nullif({a}, {b})");
            }
            _ => {}
        }
        let a = self.expr(ty, cols, d);
        match ty {
            Ty::Int => match self.below(5) {
                0 => format!("({a} + 1)"),
                1 => format!("({a} % 3)"),
                2 => {
                    let b = self.expr(Ty::Int, cols, d);
                    format!("({a} / {b})")
                }
                3 => {
                    let s = self.expr(Ty::Text, cols, d);
                    format!("length({s})::int")
                }
                _ => format!("(- {a})"),
            },
            Ty::Big => match self.below(3) {
                0 => format!("({a} % 7)"),
                1 => format!("abs({a} / 4)"),
                _ => format!("({a} / 2 + 1)"),
            },
            Ty::Text => match self.below(5) {
                4 => {
                    let j = self.expr(Ty::Json, cols, d);
                    format!("({j} ->> 's')")
                }
                0 => format!("upper({a})"),
                1 => format!("substr({a}, 1, 1)"),
                2 => format!("({a} || '!')"),
                _ => format!("trim({a})"),
            },
            Ty::Dec => match self.below(2) {
                0 => format!("({a} + 1)"),
                _ => format!("(- {a})"),
            },
            Ty::Float => match self.below(3) {
                0 => format!("({a} * 2)"),
                1 => format!("abs({a})"),
                _ => format!("({a} + 0.25)"),
            },
            Ty::Ts => match self.below(2) {
                0 => format!("date_trunc('minute', {a})"),
                _ => format!("({a} + INTERVAL '15 seconds')"),
            },
            Ty::Bool => self.predicate(cols, d),
            // Some of these are no UUID, and so NULL.
            Ty::Uuid => {
                let i = self.expr(Ty::Int, cols, d);
                format!("lpad(({i})::text, 32, '0')::uuid")
            }
            Ty::Json => {
                let (i, s) = (self.expr(Ty::Int, cols, d), self.expr(Ty::Text, cols, d));
                match self.below(5) {
                    0 => format!("jsonb_build_object('k', {i}, 's', {s})"),
                    1 => format!("jsonb_build_array({i}, {s}, {a})"),
                    2 => format!("to_jsonb({s})"),
                    3 => format!("({a} -> 'k')"),
                    // Some of these are no JSON, and so NULL; a constant would be refused.
                    _ => match self.column(Ty::Text, cols) {
                        Some(c) => format!("CAST({c} AS jsonb)"),
                        None => format!("to_jsonb({s})"),
                    },
                }
            }
            Ty::Any => a,
        }
    }

    pub(super) fn predicate(&mut self, cols: &[Col], depth: usize) -> String {
        if depth > 0 {
            let d = depth - 1;
            match self.below(6) {
                0 => {
                    let (a, b) = (self.predicate(cols, d), self.predicate(cols, d));
                    return format!("({a} AND {b})");
                }
                1 => {
                    let (a, b) = (self.predicate(cols, d), self.predicate(cols, d));
                    return format!("({a} OR {b})");
                }
                2 => return format!("NOT ({})", self.predicate(cols, d)),
                _ => {}
            }
        }
        let c = self.pick(cols).clone();
        let name = c.name;
        match (c.ty, self.below(6)) {
            (Ty::Any, 0..3) | (_, 0) => format!("{name} IS NULL"),
            (Ty::Any, _) => format!("{name} IS NOT NULL"),
            (Ty::Bool, 1..4) => name,
            (Ty::Text, 1) => format!("{name} LIKE '{}'", self.pick(&["a%", "%b", "_", "%"])),
            (ty, 2) => {
                let (a, b) = (self.literal(ty), self.literal(ty));
                format!("{name} BETWEEN {a} AND {b}")
            }
            (ty, 3) => {
                let (a, b) = (self.literal(ty), self.literal(ty));
                format!("{name} {} ({a}, {b})", self.pick(&["IN", "NOT IN"]))
            }
            (ty, _) => {
                let other = match self.column(ty, cols) {
                    Some(o) if self.chance(40) => o,
                    _ => self.literal(ty),
                };
                let op = *self.pick(&["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
                format!("{name} {op} {other}")
            }
        }
    }

    /// IN, EXISTS, a comparison with a scalar subquery; plain or correlated.
    pub(super) fn subquery_predicate(&mut self, depth: usize, cols: &[Col]) -> String {
        self.budget = self.budget.saturating_sub(1);
        let c = self.pick(cols).clone();
        let inner = self.base();
        let correlated = self.chance(50);
        let mut conditions = Vec::new();
        if correlated && let Some(e) = self.equality(cols, &inner.cols) {
            conditions.push(e.replace(" IS NOT DISTINCT FROM ", " = "));
        }
        if self.chance(50) {
            conditions.push(self.predicate(&inner.cols, 1));
        }
        let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        let _ = depth;
        let ty = if c.ty == Ty::Any { Ty::Int } else { c.ty };
        let outer = if c.ty == Ty::Any { "1".to_owned() } else { c.name };
        let value = self.expr(ty, &inner.cols, 1);
        match self.below(6) {
            0 => format!("EXISTS (SELECT 1 FROM {}{filter})", inner.sql),
            1 => format!("NOT EXISTS (SELECT 1 FROM {}{filter})", inner.sql),
            2 => format!("{outer} IN (SELECT {value} FROM {}{filter})", inner.sql),
            3 => format!("{outer} NOT IN (SELECT {value} FROM {}{filter})", inner.sql),
            4 => {
                let call = *self.pick(&["max", "min"]);
                let ty = if ty == Ty::Bool { Ty::Int } else { ty };
                let (outer, value) = match ty {
                    Ty::Int if outer == "1" => (outer, self.expr(Ty::Int, &inner.cols, 1)),
                    _ => (self.expr(ty, cols, 0), self.expr(ty, &inner.cols, 1)),
                };
                let op = *self.pick(&["=", "<", ">="]);
                format!("{outer} {op} (SELECT {call}({value}) FROM {}{filter})", inner.sql)
            }
            _ => {
                let other = self.predicate(cols, 1);
                format!("({other} OR {outer} IN (SELECT {value} FROM {}{filter}))", inner.sql)
            }
        }
    }

    /// An aggregate call and the type of its result.
    pub(super) fn aggregate_call(&mut self, cols: &[Col]) -> (String, Ty) {
        let ty = loop {
            let ty = self.pick(cols).ty;
            if ty != Ty::Any || self.chance(20) {
                break ty;
            }
        };
        let e = self.expr(ty, cols, 1);
        let distinct = if self.chance(20) { "DISTINCT " } else { "" };
        let (call, out) = match (ty, self.below(8)) {
            (_, 0) => ("count(*)".to_owned(), Ty::Big),
            (_, 1) => (format!("count({distinct}{e})"), Ty::Big),
            (Ty::Int, 2..=4) => (format!("sum({distinct}{e})"), Ty::Big),
            (Ty::Int | Ty::Dec | Ty::Float, 5) => (format!("avg({distinct}{e})"), Ty::Any),
            (Ty::Dec, 2..=4) => (format!("sum({distinct}{e})"), Ty::Any),
            (Ty::Float, 2..=3) => (format!("sum({distinct}{e})"), Ty::Float),
            (Ty::Bool, 2..=4) => (format!("bool_and({e})"), Ty::Bool),
            (Ty::Bool, _) => (format!("bool_or({e})"), Ty::Bool),
            (Ty::Int | Ty::Text, 6) => (format!("array_agg({e})"), Ty::Any),
            (Ty::Text, 7) => (format!("string_agg({e}, ',')"), Ty::Any),
            (Ty::Int | Ty::Float, 7) => {
                let f = *self.pick(&["var_pop", "var_samp", "stddev", "stddev_pop"]);
                (format!("{f}({e})"), Ty::Any)
            }
            (_, n) => (format!("{}({e})", if n % 2 == 0 { "min" } else { "max" }), ty),
        };
        if self.chance(15) {
            let p = self.predicate(cols, 1);
            return (format!("{call} FILTER (WHERE {p})"), out);
        }
        (call, out)
    }

    /// Some type.
    pub(super) fn some_type(&mut self) -> Ty {
        *self.pick(ALL)
    }
}
