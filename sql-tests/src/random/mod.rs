//! Random queries over the tables of [`crate::dml`]: joins, aggregates, windows, subqueries, set
//! operations, top-n, nested in one another. Every query is valid and its answer does not depend
//! on the order of rows. The same seed makes the same query.

mod close;
mod expr;
mod over;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The type of a column, as far as expressions need to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    /// Small integers: products of a few do not overflow.
    Int,
    /// Integers that may be large.
    Big,
    /// Text.
    Text,
    /// Decimals.
    Dec,
    /// Floats whose sums are exact.
    Float,
    /// Timestamps.
    Ts,
    /// Booleans.
    Bool,
    /// UUIDs, made of integers.
    Uuid,
    /// JSON, made of integers and texts.
    Json,
    /// Anything else: compared, counted and passed on only.
    Any,
}

/// A column that can be named in an expression.
#[derive(Debug, Clone)]
pub struct Col {
    /// How it is named, with its relation.
    pub name: String,
    /// Its type.
    pub ty: Ty,
}

/// A query and its columns.
#[derive(Debug, Clone)]
pub struct Made {
    /// The text.
    pub sql: String,
    /// Names and types of the columns; the names are distinct.
    pub cols: Vec<Col>,
}

/// A relation in FROM with its columns.
struct From {
    sql: String,
    cols: Vec<Col>,
}

const BASE: &[(&str, &[(&str, Ty)])] = &[
    (
        "t",
        &[
            ("id", Ty::Int),
            ("a", Ty::Int),
            ("b", Ty::Big),
            ("s", Ty::Text),
            ("d", Ty::Dec),
            ("f", Ty::Float),
            ("ts", Ty::Ts),
            ("ok", Ty::Bool),
        ],
    ),
    ("u", &[("a", Ty::Int), ("s", Ty::Text), ("d", Ty::Dec), ("f", Ty::Float), ("ts", Ty::Ts)]),
    ("w", &[("k", Ty::Int), ("n", Ty::Text), ("v", Ty::Int)]),
    ("ev", &[("ts", Ty::Ts), ("k", Ty::Int), ("v", Ty::Int)]),
];

/// Makes queries.
pub struct Queries {
    rng: SmallRng,
    names: usize,
    /// How many more SELECTs the query may hold.
    budget: usize,
}

/// The query of a seed.
pub fn query(seed: u64) -> String {
    let mut q = Queries { rng: SmallRng::seed_from_u64(seed ^ 0x05ee_d05a), names: 0, budget: 5 };
    if q.chance(14) {
        return format!("{} EMIT ON WINDOW CLOSE", q.closing());
    }
    q.query(3, &[]).sql
}

impl Queries {
    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n.max(1))
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let i = self.below(from.len());
        &from[i]
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// A query. `outer` are the columns of the queries around it, for correlation.
    fn query(&mut self, depth: usize, outer: &[Col]) -> Made {
        self.budget = self.budget.saturating_sub(1);
        if depth > 1 && self.budget > 1 && outer.is_empty() && self.chance(18) {
            return self.set_operation(depth);
        }
        if depth > 1 && self.budget > 1 && outer.is_empty() && self.chance(8) {
            let name = self.name("cte");
            let inner = self.query(depth - 1, &[]);
            let (a, b) = (self.name("x"), self.name("x"));
            let cols = |alias: &str| inner.cols.iter().map(|c| qualified(alias, c)).collect::<Vec<_>>();
            let (left, right) = (cols(&a), cols(&b));
            let on = self.equality(&left, &right).unwrap_or_else(|| "true".into());
            let from = From { sql: format!("{name} {a} JOIN {name} {b} ON {on}"), cols: [left, right].concat() };
            let body = self.select(depth, from, outer);
            return Made { sql: format!("WITH {name} AS ({}) {}", inner.sql, body.sql), cols: body.cols };
        }
        let from = self.from(depth, outer);
        self.select(depth, from, outer)
    }

    fn set_operation(&mut self, depth: usize) -> Made {
        let left = self.query(depth - 1, &[]);
        // The other side has columns of the same types.
        let from = self.from(depth - 1, &[]);
        let mut list = Vec::new();
        let mut cols = Vec::new();
        for c in &left.cols {
            let e = match c.ty {
                Ty::Any => "NULL".to_owned(),
                ty => self.expr(ty, &from.cols, 1),
            };
            let name = self.name("c");
            list.push(format!("{e} AS {name}"));
            cols.push(Col { name: c.name.clone(), ty: c.ty });
        }
        let filter = self.filter(depth - 1, &from.cols, "WHERE");
        let right = format!("SELECT {} FROM {}{filter}", list.join(", "), from.sql);
        let op = *self.pick(&["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]);
        Made { sql: format!("({}) {op} ({right})", left.sql), cols }
    }

    fn base(&mut self) -> From {
        let (table, columns) = *self.pick(BASE);
        let alias = self.name("x");
        let mut cols: Vec<Col> = columns.iter().map(|(n, ty)| Col { name: format!("{alias}.{n}"), ty: *ty }).collect();
        let mut sql = format!("{table} {alias}");
        if table != "w" && self.chance(12) {
            let window = match self.below(3) {
                0 => format!("TUMBLE({table}, ts, INTERVAL '{} seconds')", self.pick(&[5, 20, 60])),
                1 => format!("TUMBLE({table}, ts, INTERVAL '30 seconds', INTERVAL '{} seconds')", self.pick(&[7, 12])),
                _ => {
                    format!("HOP({table}, ts, INTERVAL '10 seconds', INTERVAL '{} seconds')", self.pick(&[10, 20, 25]))
                }
            };
            sql = format!("{window} {alias}");
            cols.extend(["window_start", "window_end"].map(|n| Col { name: format!("{alias}.{n}"), ty: Ty::Ts }));
        }
        From { sql, cols }
    }

    fn from(&mut self, depth: usize, outer: &[Col]) -> From {
        let mut from = self.one_relation(depth, outer);
        let joins = *self.pick(&[0, 0, 0, 1, 1, 1, 2]);
        for _ in 0..joins {
            if from.cols.len() > 24 {
                break;
            }
            from = self.join(from, depth, outer);
        }
        from
    }

    fn one_relation(&mut self, depth: usize, outer: &[Col]) -> From {
        if depth > 0 && self.budget > 0 && self.chance(25) {
            let inner = self.query(depth - 1, &[]);
            let alias = self.name("x");
            let cols = inner.cols.iter().map(|c| qualified(&alias, c)).collect();
            return From { sql: format!("({}) {alias}", inner.sql), cols };
        }
        let _ = outer;
        self.base()
    }

    fn join(&mut self, left: From, depth: usize, outer: &[Col]) -> From {
        let right = self.one_relation(depth.saturating_sub(1), outer);
        let both: Vec<Col> = left.cols.iter().chain(&right.cols).cloned().collect();
        if outer.is_empty()
            && self.chance(12)
            && let Some(condition) = self.nearest(&left.cols, &right.cols)
        {
            let kind = *self.pick(&["ASOF JOIN", "ASOF LEFT JOIN"]);
            return From { sql: format!("{} {kind} {} {condition}", left.sql, right.sql), cols: both };
        }
        let kind = *self.pick(&["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let on = match self.equality(&left.cols, &right.cols) {
            Some(e) if kind != "FULL JOIN" && self.chance(30) => {
                let more = self.predicate(&both, 1);
                format!("{e} AND {more}")
            }
            Some(e) => e,
            // Nothing to be equal: any pair that meets a condition.
            None => return From { sql: format!("{} CROSS JOIN {}", left.sql, right.sql), cols: both },
        };
        From { sql: format!("{} {kind} {} ON {on}", left.sql, right.sql), cols: both }
    }

    /// The conditions of an ASOF JOIN, if there are columns to compare.
    fn nearest(&mut self, left: &[Col], right: &[Col]) -> Option<String> {
        let pairs = |types: &[Ty]| {
            let of =
                |l: &Col| right.iter().filter(|r| r.ty == l.ty).map(|r| (l.name.clone(), r.name.clone())).collect();
            let fit = left.iter().filter(|l| types.contains(&l.ty));
            fit.flat_map(|l| -> Vec<(String, String)> { of(l) }).collect::<Vec<_>>()
        };
        let (times, keys) = (pairs(&[Ty::Ts, Ty::Dec, Ty::Big]), pairs(&[Ty::Int, Ty::Text]));
        if times.is_empty() {
            return None;
        }
        let (a, b) = self.pick(&times).clone();
        let op = *self.pick(&[">=", ">", "<=", "<"]);
        let on = match keys.is_empty() || self.chance(15) {
            true => String::new(),
            false => {
                let (l, r) = self.pick(&keys).clone();
                format!(" ON {l} = {r}")
            }
        };
        Some(format!("MATCH_CONDITION ({a} {op} {b}){on}"))
    }

    /// `l = r` of columns of one type, maybe two.
    fn equality(&mut self, left: &[Col], right: &[Col]) -> Option<String> {
        let mut pairs = Vec::new();
        for l in left {
            for r in right {
                if l.ty == r.ty && matches!(l.ty, Ty::Int | Ty::Text | Ty::Ts | Ty::Dec | Ty::Uuid | Ty::Json) {
                    pairs.push((l, r));
                }
            }
        }
        if pairs.is_empty() {
            return None;
        }
        let n = if self.chance(20) { 2 } else { 1 };
        let mut out = Vec::new();
        for _ in 0..n {
            let (l, r) = *self.pick(&pairs);
            let op = if self.chance(10) { "IS NOT DISTINCT FROM" } else { "=" };
            out.push(format!("{} {op} {}", l.name, r.name));
        }
        Some(out.join(" AND "))
    }

    fn filter(&mut self, depth: usize, cols: &[Col], word: &str) -> String {
        if !self.chance(55) {
            return String::new();
        }
        let p = if depth > 0 && self.budget > 0 && self.chance(40) {
            self.subquery_predicate(depth, cols)
        } else {
            self.predicate(cols, 2)
        };
        format!(" {word} {p}")
    }

    fn select(&mut self, depth: usize, from: From, outer: &[Col]) -> Made {
        let mut scope = from.cols.clone();
        scope.extend(outer.iter().cloned());
        let filter = self.filter(depth, &scope, "WHERE");
        let mut made = match self.below(10) {
            0..=3 => self.aggregate(depth, &from, &filter),
            4 if outer.is_empty() => self.over(&from, &filter),
            _ => self.plain(&from, &filter),
        };
        if self.chance(12) {
            made.sql = self.top(&made);
        }
        made
    }

    /// The type of some column, or one that no table has.
    fn type_of(&mut self, from: &From) -> Ty {
        match self.below(20) {
            0 => Ty::Uuid,
            1 => Ty::Json,
            _ => self.pick(&from.cols).ty,
        }
    }

    fn plain(&mut self, from: &From, filter: &str) -> Made {
        let n = 1 + self.below(4);
        let distinct = if self.chance(15) { "DISTINCT " } else { "" };
        let (mut list, mut cols) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let ty = self.type_of(from);
            let e = self.expr(ty, &from.cols, 2);
            let name = self.name("c");
            list.push(format!("{e} AS {name}"));
            cols.push(Col { name, ty });
        }
        Made { sql: format!("SELECT {distinct}{} FROM {}{filter}", list.join(", "), from.sql), cols }
    }

    fn aggregate(&mut self, depth: usize, from: &From, filter: &str) -> Made {
        let (mut list, mut cols, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..*self.pick(&[0, 1, 1, 1, 2]) {
            let ty = self.type_of(from);
            let e = self.expr(ty, &from.cols, 1);
            let name = self.name("c");
            list.push(format!("{e} AS {name}"));
            keys.push(list.len().to_string());
            cols.push(Col { name, ty });
        }
        for _ in 0..1 + self.below(3) {
            let (e, ty) = self.aggregate_call(&from.cols);
            let name = self.name("c");
            list.push(format!("{e} AS {name}"));
            cols.push(Col { name, ty });
        }
        let mut sql = format!("SELECT {} FROM {}{filter}", list.join(", "), from.sql);
        if !keys.is_empty() {
            let sets = if keys.len() == 2 { self.below(10) } else { 9 };
            // Positions, or the expressions themselves; some stand there more than once.
            let (mut x, mut y) = (bare(&list[0]), bare(&list[keys.len() - 1]));
            if [&x, &y].iter().any(|e| e.parse::<i64>().is_ok()) || self.chance(30) {
                (x, y) = (keys[0].clone(), keys[keys.len() - 1].clone());
            }
            let again = match self.below(4) {
                0 => format!(", {x}"),
                1 => format!(", {y}"),
                _ => String::new(),
            };
            let by = match sets {
                0 => format!("ROLLUP ({x}, {y}{again})"),
                1 => format!("CUBE ({x}, {y}{again})"),
                2 => format!("GROUPING SETS (({x}, {y}), ({y}, {x}), ({x}{again}), ())"),
                3 => format!("{x}, ROLLUP ({y}{again})"),
                _ => keys.join(", "),
            };
            sql = format!("{sql} GROUP BY {by}");
        }
        if self.chance(20) {
            let (e, ty) = self.aggregate_call(&from.cols);
            let p = match ty {
                Ty::Int | Ty::Big => format!("{e} > {}", self.below(4)),
                _ => format!("{e} IS NOT NULL"),
            };
            sql = format!("{sql} HAVING {p}");
        }
        let _ = depth;
        Made { sql, cols }
    }

    /// The query with ORDER BY and LIMIT around it.
    fn top(&mut self, made: &Made) -> String {
        let mut order = Vec::new();
        for _ in 0..1 + self.below(2) {
            let c = self.pick(&made.cols).name.clone();
            let direction = *self.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
            order.push(format!("{c}{direction}"));
        }
        let offset = if self.chance(25) { format!(" OFFSET {}", self.below(3)) } else { String::new() };
        let alias = self.name("x");
        let limit = 1 + self.below(6);
        format!("SELECT * FROM ({}) {alias} ORDER BY {} LIMIT {limit}{offset}", made.sql, order.join(", "))
    }
}

/// The expression of an item of a SELECT list, without its name.
fn bare(item: &str) -> String {
    item.rsplit_once(" AS ").map_or(item, |(e, _)| e).to_owned()
}

fn qualified(alias: &str, c: &Col) -> Col {
    Col { name: format!("{alias}.{}", c.name), ty: c.ty }
}
