//! Random changes of a few tables: with and without keys, NULLs, duplicates, updates of key
//! columns, deletes of everything, rows that come again. The same seed makes the same
//! statements.
//!
//! Statements may fail (a key that is taken); they must then fail everywhere and change nothing.
//! Floats are sums of few powers of two, so that sums in any order are exact.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The tables that the statements change.
pub const TABLES: &[&str] = &[
    // Keyed; a taken key is an error.
    "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, s text, d numeric(12,2), f double precision, ts timestamp, ok boolean)",
    // A bag.
    "CREATE TABLE u (a int, s text, d numeric(12,2), f double precision, ts timestamp)",
    // Two key columns; a taken key is overwritten.
    "CREATE TABLE w (k int, n text, v int, PRIMARY KEY (k, n)) ON CONFLICT DO OVERWRITE",
    // Append-only with a watermark: state is freed as time goes on.
    "CREATE TABLE ev (ts timestamp, k int, v int, WATERMARK FOR ts AS ts - INTERVAL '10 seconds') APPEND ONLY",
];

/// Names of [`TABLES`].
pub const NAMES: &[&str] = &["t", "u", "w", "ev"];

const TEXTS: &[&str] = &["", "a", "A", "ab", "b", "NULL", "x y", "it''s", "äöü", "日本", "%", "_b", "10", "-3", "1e3"];

/// Makes statements.
pub struct Dml {
    rng: SmallRng,
    /// Seconds since 2024-01-01 of the newest event.
    clock: u32,
    /// NaN, infinities, extreme numbers and times too.
    extremes: bool,
}

impl Dml {
    /// Statements of a seed.
    pub fn new(seed: u64, extremes: bool) -> Self {
        Self { rng: SmallRng::seed_from_u64(seed), clock: 0, extremes }
    }

    /// A number below `n` (for choices of tests that must follow the seed).
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn or_null(&mut self, value: String) -> String {
        if self.chance(18) { "NULL".into() } else { value }
    }

    fn int(&mut self) -> String {
        let v = if self.extremes && self.chance(10) {
            ["2147483647", "-2147483648", "0"][self.below(3)].to_owned()
        } else {
            self.rng.random_range(-3..7).to_string()
        };
        self.or_null(v)
    }

    fn bigint(&mut self) -> String {
        let v = if self.extremes && self.chance(6) {
            ["4611686018427387904", "-4611686018427387904"][self.below(2)].to_owned()
        } else {
            self.rng.random_range(-50..1000).to_string()
        };
        self.or_null(v)
    }

    fn text(&mut self) -> String {
        let i = self.below(TEXTS.len());
        let v = if self.extremes && self.chance(8) {
            format!("'{}'", "long ".repeat(self.rng.random_range(50..400)))
        } else {
            format!("'{}'", TEXTS[i])
        };
        self.or_null(v)
    }

    fn decimal(&mut self) -> String {
        let v = if self.extremes && self.chance(8) {
            ["9999999999.99", "-9999999999.99", "0.00"][self.below(3)].to_owned()
        } else {
            format!("{}.{:02}", self.rng.random_range(-20..40), self.rng.random_range(0..4) * 25)
        };
        self.or_null(v)
    }

    fn float(&mut self) -> String {
        let v = if self.extremes && self.chance(12) {
            ["'NaN'", "'Infinity'", "'-Infinity'", "'-0.0'", "1e300"][self.below(5)].to_owned()
        } else {
            format!("{}", f64::from(self.rng.random_range(-64..128)) / 4.0)
        };
        self.or_null(v)
    }

    fn timestamp(&mut self) -> String {
        let v = if self.extremes && self.chance(10) {
            ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'"][self.below(3)]
                .to_owned()
        } else {
            let (m, s, half) = (self.rng.random_range(0..4), self.rng.random_range(0..60), self.below(2));
            format!("'2024-01-01 00:{m:02}:{s:02}.{}'", half * 5)
        };
        self.or_null(v)
    }

    fn boolean(&mut self) -> String {
        let v = ["true", "false"][self.below(2)].to_owned();
        self.or_null(v)
    }

    fn id(&mut self) -> i32 {
        self.rng.random_range(0..60)
    }

    fn row(&mut self, table: &str) -> String {
        let cells = match table {
            "t" => vec![
                self.id().to_string(),
                self.int(),
                self.bigint(),
                self.text(),
                self.decimal(),
                self.float(),
                self.timestamp(),
                self.boolean(),
            ],
            "u" => vec![self.int(), self.text(), self.decimal(), self.float(), self.timestamp()],
            "w" => {
                let (k, n) = (self.rng.random_range(-3..7), self.below(4));
                vec![k.to_string(), format!("'{}'", ["a", "b", "", "ab"][n]), self.int()]
            }
            _ => {
                self.clock += self.rng.random_range(0..6);
                // Some are late, and some too late.
                let at = self.clock.saturating_sub(self.rng.random_range(0..16));
                let ts = format!("'2024-01-01 {:02}:{:02}:{:02}'", at / 3600 % 24, at / 60 % 60, at % 60);
                vec![self.or_null(ts), self.int(), self.int()]
            }
        };
        format!("({})", cells.join(", "))
    }

    fn insert(&mut self, table: &str) -> String {
        let n = if self.chance(15) { self.rng.random_range(10..40) } else { self.rng.random_range(1..5) };
        let mut rows = Vec::new();
        for _ in 0..n {
            let row = self.row(table);
            rows.push(row);
            // The same row more than once, where that is no conflict.
            if table != "t" && self.chance(20) {
                rows.extend(rows.last().cloned());
            }
        }
        if table == "t" {
            // Keys within one statement differ, or it would nearly always fail.
            let mut seen = std::collections::BTreeSet::new();
            rows.retain(|r| seen.insert(r.split(',').next().unwrap_or_default().to_owned()));
        }
        format!("INSERT INTO {table} VALUES {}", rows.join(", "))
    }

    fn predicate(&mut self, table: &str) -> String {
        let x = self.rng.random_range(-3..7);
        let key = self.id();
        let s = TEXTS[self.below(TEXTS.len())];
        let options: Vec<String> = match table {
            "t" => vec![
                format!("id = {key}"),
                format!("id % 7 = {}", key % 7),
                format!("a = {x}"),
                "a IS NULL".into(),
                format!("s = '{s}' OR b > 900"),
                "ok".into(),
                format!("id BETWEEN {key} AND {}", key + 6),
            ],
            "u" => vec![
                format!("a = {x}"),
                format!("a > {x} AND s <> '{s}'"),
                "a IS NULL".into(),
                format!("s = '{s}'"),
                "d < 0".into(),
                "ts IS NULL".into(),
            ],
            _ => vec![format!("k = {x}"), "n = 'ab'".into(), format!("v = {x}"), "v IS NULL".into()],
        };
        let i = self.below(options.len());
        options[i].clone()
    }

    fn update(&mut self, table: &str) -> String {
        let (int, text, decimal, float, ts) = (self.int(), self.text(), self.decimal(), self.float(), self.timestamp());
        let key = self.id();
        let (set, keyed): (Vec<String>, Option<String>) = match table {
            "t" => (
                vec![
                    format!("a = {int}"),
                    format!("a = {int}, s = {text}"),
                    "b = b + 1".into(),
                    format!("d = {decimal}, f = {float}"),
                    format!("ts = {ts}"),
                    "ok = NOT ok".into(),
                    "a = a".into(),
                ],
                Some(format!("UPDATE t SET id = {} WHERE id = {key}", self.id())),
            ),
            "u" => (
                vec![
                    format!("a = {int}"),
                    format!("s = {text}"),
                    format!("d = {decimal}, f = {float}"),
                    format!("ts = {ts}, a = {int}"),
                ],
                None,
            ),
            _ => (
                vec![format!("v = {int}"), "v = -1 - v".into()],
                Some("UPDATE w SET k = k + 10 WHERE k < 0".to_owned()),
            ),
        };
        if let Some(keyed) = keyed
            && self.chance(25)
        {
            return keyed;
        }
        let i = self.below(set.len());
        let place = self.predicate(table);
        format!("UPDATE {table} SET {} WHERE {place}", set[i])
    }

    /// The next statement.
    pub fn statement(&mut self) -> String {
        let table = NAMES[[0, 0, 0, 1, 1, 1, 2, 2, 3, 3][self.below(10)]];
        if table == "ev" {
            return self.insert(table);
        }
        match self.rng.random_range(0..100) {
            0..55 => self.insert(table),
            55..80 => self.update(table),
            80..96 => {
                let place = self.predicate(table);
                format!("DELETE FROM {table} WHERE {place}")
            }
            96..98 => format!("DELETE FROM {table}"),
            // All rows once more; or the other half of a chain of changes.
            _ if table == "u" => "INSERT INTO u SELECT a, s, d, f, ts FROM t ORDER BY id".into(),
            _ => "INSERT INTO w SELECT id, coalesce(s, 'n'), a FROM t ORDER BY id".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_statements() {
        let statements = |seed| {
            let mut dml = Dml::new(seed, true);
            (0..50).map(|_| dml.statement()).collect::<Vec<_>>()
        };
        assert_eq!(statements(7), statements(7));
        assert_ne!(statements(7), statements(8));
    }
}
