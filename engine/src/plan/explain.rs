//! Plans as text, for EXPLAIN: one line per operator, indented below what reads it, with
//! its details and, in brackets, what is known of its rows. The text is stable: tests
//! compare it. Columns are shown as `name@index`.

use std::fmt::{self, Write};

use arrow::datatypes::Schema;

use super::fragment::FragmentGraph;
use super::{
    AggCall, Distribution, GroupingSet, Motion, OpSpec, Order, OrderBy, Phase, RankKind, StreamNode, TemporalBound,
    WatermarkColumn, WatermarkKind,
};

impl StreamNode {
    /// The plan as text, with a line break after every operator.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        for _ in 0..depth {
            out.push_str("  ");
        }
        out.push_str(self.op.name());
        out.push_str(&self.details());
        out.push_str(&self.known());
        out.push('\n');
        if let OpSpec::Recursive(r) = &self.op {
            r.step.write(out, depth + 1);
        }
        for input in &self.inputs {
            input.write(out, depth + 1);
        }
    }

    /// What the operator does, in its input's columns.
    fn details(&self) -> String {
        let input = self.inputs.first().map(|n| n.schema.as_ref());
        let own = Some(self.schema.as_ref());
        match &self.op {
            OpSpec::Source(s) => {
                let mut text = format!(" {} columns={}", s.name, names(own, self.schema.fields().len()));
                if let Some(w) = s.watermark {
                    let delay = Micros(w.delay_us);
                    let _ = write!(text, " watermark={} - {delay}", column(own, w.column));
                }
                text
            }
            OpSpec::Scan(s) => format!(" {} columns={}", s.name, names(own, self.schema.fields().len())),
            OpSpec::Values(v) => format!(" rows={}", v.rows.num_rows()),
            OpSpec::Filter(f) => format!(" {}", f.predicate),
            OpSpec::Temporal(t) => {
                let bound = |b: &TemporalBound| {
                    let what = if b.leave { "until" } else { "from" };
                    let sign = if b.shift_us < 0 { '-' } else { '+' };
                    let by = Micros(b.shift_us.saturating_abs());
                    if b.shift_us == 0 {
                        format!("{what} {}", b.expr)
                    } else {
                        format!("{what} {} {sign} {by}", b.expr)
                    }
                };
                format!(" {}", t.bounds.iter().map(bound).collect::<Vec<_>>().join(" "))
            }
            OpSpec::Project(p) => {
                let columns: Vec<String> = p
                    .exprs
                    .iter()
                    .enumerate()
                    .map(|(i, e)| {
                        let (text, name) = (e.to_string(), column_name(own, i));
                        match text.rsplit_once('@') {
                            Some((plain, _)) if plain == name => text,
                            _ => format!("{text} AS {name}"),
                        }
                    })
                    .collect();
                format!(" {}", columns.join(", "))
            }
            OpSpec::Repeat(r) => format!(" {}", column(input, r.count)),
            OpSpec::Unnest(u) => {
                let outer = if u.preserve_nulls { " outer" } else { "" };
                format!("{outer} {}", columns(input, &u.columns))
            }
            OpSpec::Expand(e) => {
                let set = |s: &GroupingSet| {
                    let kept: Vec<usize> =
                        e.columns.iter().zip(&s.keep).filter(|(_, k)| **k).map(|(c, _)| *c).collect();
                    format!("{}: {}", s.id, columns(input, &kept))
                };
                format!(" sets=[{}]", e.sets.iter().map(set).collect::<Vec<_>>().join(", "))
            }
            OpSpec::Aggregate(a) => {
                // What the last phase is of stands below, at the first.
                let phase = match &a.phase {
                    Phase::Whole => "",
                    Phase::Partial => " partial",
                    Phase::Final(_) => " final",
                };
                let input = match &a.phase {
                    Phase::Final(from) => Some(from.as_ref()),
                    _ => input,
                };
                let mut text = format!("{phase} group={}", columns(input, &a.group));
                let calls: Vec<String> = a.calls.iter().map(|c| call(input, c)).collect();
                let _ = write!(text, " calls=[{}]", calls.join(", "));
                if let Some(w) = a.window {
                    let _ = write!(text, " window={}", column(own, w.column));
                }
                if a.emit_on_close {
                    text.push_str(" emit=on-close");
                }
                text
            }
            OpSpec::Session(s) => {
                let gap = Micros(s.gap_us);
                let mut text =
                    format!(" partition={} time={} gap={gap}", columns(input, &s.partition), column(input, s.time));
                if s.emit_on_close {
                    text.push_str(" emit=on-close");
                }
                text
            }
            OpSpec::Join(j) => {
                let right = self.inputs.get(1).map(|n| n.schema.as_ref());
                let op = if j.null_equal { "is not distinct from" } else { "=" };
                let kind = format!("{:?}", j.kind).to_lowercase();
                let mut text = format!(" {kind} on=[{}]", pairs(input, &j.left_keys, right, &j.right_keys, op));
                if let Some(f) = &j.filter {
                    let _ = write!(text, " filter={f}");
                }
                for (expiry, side) in j.expire.iter().zip([input, right]) {
                    if let Some(e) = expiry {
                        let (sign, offset) =
                            if e.offset_us < 0 { ('-', e.offset_us.saturating_neg()) } else { ('+', e.offset_us) };
                        let _ = write!(text, " free={} < watermark", column(side, e.column));
                        if offset != 0 {
                            let _ = write!(text, " {sign} {}", Micros(offset));
                        }
                    }
                }
                text
            }
            OpSpec::AsOf(a) => {
                let right = self.inputs.get(1).map(|n| n.schema.as_ref());
                let op = match (a.backward, a.strict) {
                    (true, false) => ">=",
                    (true, true) => ">",
                    (false, false) => "<=",
                    (false, true) => "<",
                };
                let free = if a.times.is_some() { " free=by watermark" } else { "" };
                let emit = if a.emit_on_close { " emit=on-close" } else { "" };
                format!(
                    " {} on=[{}] match={} {op} {}{free}{emit}",
                    if a.outer { "left" } else { "inner" },
                    pairs(input, &a.left_keys, right, &a.right_keys, "="),
                    column(input, a.left_time),
                    column(right, a.right_time)
                )
            }
            OpSpec::Lookup(l) => {
                let right = self.inputs.get(1).map(|n| n.schema.as_ref());
                let kind = if l.outer { "left" } else { "inner" };
                let filter = l.filter.as_ref().map_or(String::new(), |f| format!(" filter={f}"));
                format!(" {kind} on=[{}]{filter}", pairs(input, &l.left_keys, right, &l.right_keys, "="))
            }
            OpSpec::TopN(t) => {
                let order: Vec<String> = t.order.iter().map(|o| sort(input, o)).collect();
                let mut text = format!(" order=[{}]", order.join(", "));
                if let Some(n) = t.limit {
                    let _ = write!(text, " limit={n}");
                }
                if t.offset > 0 {
                    let _ = write!(text, " offset={}", t.offset);
                }
                text
            }
            OpSpec::Over(o) => {
                let order: Vec<String> = o.order.iter().map(|o| sort(input, o)).collect();
                let functions: Vec<&str> = o.stages.iter().flatten().map(|f| f.name()).collect();
                let partition = columns(input, &o.partition);
                let closing = closing(input, o.window, o.emit_on_close);
                format!(
                    " partition={partition} order=[{}] functions=[{}]{closing}",
                    order.join(", "),
                    functions.join(", ")
                )
            }
            OpSpec::Recursive(r) => (if r.distinct { " union" } else { " union all" }).to_string(),
            OpSpec::StepInput(0) => " rows found last".to_string(),
            OpSpec::StepInput(n) => format!(" {n}"),
            OpSpec::GroupTopN(t) => {
                let order: Vec<String> = t.order.iter().map(|o| sort(input, o)).collect();
                let kind = match t.kind {
                    RankKind::RowNumber => "row_number",
                    RankKind::Rank => "rank",
                    RankKind::DenseRank => "dense_rank",
                };
                let partition = columns(input, &t.partition);
                let closing = closing(input, t.window, t.emit_on_close);
                format!(" partition={partition} order=[{}] {kind}<={}{closing}", order.join(", "), t.limit)
            }
            OpSpec::Close(c) => format!(" window={}", column(input, c.time.column)),
            OpSpec::Exchange(e) => format!(" {}", spread(&self.schema, &e.to)),
            OpSpec::Materialize(m) => format!(" {}", m.name),
            OpSpec::Sink(s) => format!(" {}", s.name),
            OpSpec::Upsert(u) => {
                let first = if u.keep_first { " first" } else { "" };
                format!(" key={}{first}", columns(Some(&self.schema), &u.key))
            }
            OpSpec::Union | OpSpec::Distinct | OpSpec::Net => String::new(),
        }
    }

    fn known(&self) -> String {
        let own = Some(self.schema.as_ref());
        let p = &self.props;
        let mut known = vec![if p.append_only { "append-only" } else { "changes" }.to_string()];
        if let Some(key) = &p.stream_key {
            known.push(format!("key={}", columns(own, key)));
        }
        for w in &p.watermarks {
            let kind = match w.kind {
                WatermarkKind::EventTime => "time".to_string(),
                WatermarkKind::WindowStart { size_us } => format!("start of {}", Micros(size_us)),
                WatermarkKind::WindowEnd => "end".to_string(),
            };
            known.push(format!("watermark={} ({kind})", column(own, w.column)));
        }
        if let Some(motion) = &p.motion {
            let of = |wanted| {
                let moves = motion.iter().enumerate().filter(|(_, m)| **m == wanted).map(|(i, _)| i);
                columns(own, &moves.collect::<Vec<_>>())
            };
            known.push(format!("stays={}", of(Motion::Fixed)));
            for (motion, word) in [(Motion::Rising, "rising"), (Motion::Falling, "falling")] {
                let which = of(motion);
                if which != "[]" {
                    known.push(format!("{word}={which}"));
                }
            }
        }
        if !p.order.is_free() {
            known.push(format!("order={}", p.order));
        }
        known.push(spread(&self.schema, &p.distribution));
        format!(" [{}]", known.join(", "))
    }
}

impl FragmentGraph {
    /// The fragments as text, producers first.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        for f in &self.fragments {
            let _ = write!(out, "Fragment {} tasks={}", f.id, f.parallelism);
            if !f.inputs.is_empty() {
                let from: Vec<String> = f.inputs.iter().map(ToString::to_string).collect();
                let _ = write!(out, " from=[{}]", from.join(", "));
            }
            for to in &f.to {
                let how = spread(&f.root.schema, &to.exchange.to);
                let _ = write!(out, " to={} input={} {how}", to.consumer, to.input);
            }
            out.push('\n');
            f.root.write(&mut out, 1);
        }
        out
    }
}

fn column_name(schema: Option<&Schema>, index: usize) -> &str {
    schema.and_then(|s| s.fields().get(index)).map_or("?", |f| f.name())
}

fn column(schema: Option<&Schema>, index: usize) -> String {
    format!("{}@{index}", column_name(schema, index))
}

fn columns(schema: Option<&Schema>, indices: &[usize]) -> String {
    let names: Vec<String> = indices.iter().map(|&i| column(schema, i)).collect();
    format!("[{}]", names.join(", "))
}

/// Pairs of columns that are compared.
fn pairs(left: Option<&Schema>, l: &[usize], right: Option<&Schema>, r: &[usize], op: &str) -> String {
    let pair = |(l, r): (&usize, &usize)| format!("{} {op} {}", column(left, *l), column(right, *r));
    l.iter().zip(r).map(pair).collect::<Vec<_>>().join(", ")
}

fn names(schema: Option<&Schema>, count: usize) -> String {
    let names: Vec<&str> = (0..count).map(|i| column_name(schema, i)).collect();
    format!("[{}]", names.join(", "))
}

/// What closes the partitions, and whether they wait for it.
fn closing(input: Option<&Schema>, window: Option<WatermarkColumn>, emit_on_close: bool) -> String {
    let window = window.map_or(String::new(), |w| format!(" window={}", column(input, w.column)));
    format!("{window}{}", if emit_on_close { " emit=on-close" } else { "" })
}

fn call(input: Option<&Schema>, c: &AggCall) -> String {
    let distinct = if c.distinct { "distinct " } else { "" };
    let arg = c.arg.map_or("*".to_string(), |a| column(input, a));
    let filter = c.filter.map_or(String::new(), |f| format!(" filter {}", column(input, f)));
    if let Some(r) = &c.rows {
        let columns: Vec<String> = r.columns.iter().map(|o| sort(input, o)).collect();
        let first = r.first.map_or(String::new(), |n| format!(" first {n}"));
        return format!("{distinct}{} of sorted[{}]{first}{filter}", r.function, columns.join(", "));
    }
    let other = c.other.map_or(String::new(), |a| format!(", {}", column(input, a)));
    let ever = if c.outward { " ever" } else { "" };
    format!("{}({distinct}{arg}{other}){ever}{filter}", c.func)
}

fn sort(input: Option<&Schema>, o: &OrderBy) -> String {
    let mut text = column(input, o.column);
    if o.descending {
        text.push_str(" desc");
    }
    // PostgreSQL takes NULL for the greatest value; only the other order is said.
    if o.nulls_first != o.descending {
        text.push_str(if o.nulls_first { " nulls first" } else { " nulls last" });
    }
    text
}

fn spread(schema: &Schema, d: &Distribution) -> String {
    match d {
        Distribution::Any => "any".to_string(),
        Distribution::Single => "single".to_string(),
        Distribution::Hash(c) => format!("hash{}", columns(Some(schema), c)),
        Distribution::Broadcast => "broadcast".to_string(),
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.digits, "digits"), (self.epochs, "epochs"), (self.records, "records")];
        let words: Vec<&str> = words.iter().filter(|w| w.0).map(|w| w.1).collect();
        write!(f, "[{}]", words.join(", "))
    }
}

/// Microseconds, shown in the greatest unit that needs no fraction.
struct Micros(i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(i64, &str); 5] =
            [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")];
        match UNITS.iter().find(|(us, _)| self.0 != 0 && self.0 % us == 0) {
            Some((us, unit)) => write!(f, "{} {unit}", self.0 / us),
            None => write!(f, "{} us", self.0),
        }
    }
}
