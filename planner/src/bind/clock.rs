//! Texts that PostgreSQL reads and Arrow does not: timestamps without seconds, `2024-01-02 10:00`,
//! and intervals with a time of day, `1 day 02:30`. Wherever a text becomes one, it is put into
//! Arrow's form first.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchemaRef, Result, ScalarValue, exec_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// What a text is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Timestamp,
    Interval,
}

impl Kind {
    fn of(t: &DataType) -> Option<Self> {
        match t {
            DataType::Timestamp(..) => Some(Self::Timestamp),
            DataType::Interval(_) => Some(Self::Interval),
            _ => None,
        }
    }

    /// The text in Arrow's form, if it is in another.
    fn fixed(self, text: &str) -> Option<String> {
        match self {
            Self::Timestamp => full(text),
            Self::Interval => spelled_out(text),
        }
    }

    fn fix(self, texts: &ArrayRef) -> ArrayRef {
        let Some(strings) = texts.as_string_opt::<i32>() else { return Arc::clone(texts) };
        if !strings.iter().flatten().any(|t| self.fixed(t).is_some()) {
            return Arc::clone(texts);
        }
        let fixed = |t: &str| self.fixed(t).unwrap_or_else(|| t.to_owned());
        Arc::new(strings.iter().map(|t| t.map(fixed)).collect::<StringArray>())
    }
}

/// The texts of an array in the form in which Arrow casts them to `to`; the array itself if they
/// are in it, or no texts.
pub fn readable(texts: &ArrayRef, to: &DataType) -> ArrayRef {
    Kind::of(to).map_or_else(|| Arc::clone(texts), |kind| kind.fix(texts))
}

fn full(text: &str) -> Option<String> {
    let at = place_of_seconds(text)?;
    Some(format!("{}:00{}", &text[..at], &text[at..]))
}

/// An interval whose time of day is in words, if it has one in digits.
pub(super) fn spelled_out(text: &str) -> Option<String> {
    if !text.contains(':') {
        return None;
    }
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        if !word.contains(':') {
            out.push(word.to_owned());
            continue;
        }
        let (sign, digits) = match word.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", word.strip_prefix('+').unwrap_or(word)),
        };
        let parts: Vec<&str> = digits.split(':').collect();
        let whole = |p: &&str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
        let (clock, seconds) = match parts.as_slice() {
            [h, m] => ([h, m], "0"),
            [h, m, s] if s.parse::<f64>().is_ok_and(|s| (0.0..60.0).contains(&s)) => ([h, m], *s),
            _ => return None,
        };
        if !clock.iter().all(|p| whole(p)) {
            return None;
        }
        out.push(format!("{sign}{} hours {sign}{} minutes {sign}{seconds} seconds", clock[0], clock[1]));
    }
    Some(out.join(" "))
}

/// Where `:00` belongs, if the text is a date and a time of hours and minutes.
fn place_of_seconds(text: &str) -> Option<usize> {
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let start = text.len() - text.trim_start().len();
    let gap = start + text[start..].find([' ', 'T', 't'])?;
    let time = &text[gap + 1..];
    let hour = digits(time);
    let minute = digits(time.get(hour..)?.strip_prefix(':')?);
    let end = hour + 1 + minute;
    // Behind it comes nothing or a zone.
    let zone = time[end..].chars().next().is_none_or(|c| matches!(c, '+' | '-' | 'Z' | 'z' | ' '));
    (gap >= start + 8 && (1..=2).contains(&hour) && minute == 2 && zone).then_some(gap + 1 + end)
}

/// Puts texts into a readable form where they are cast, in the whole plan, whose types are coerced.
pub(super) fn read_as_postgresql(plan: LogicalPlan) -> Result<LogicalPlan> {
    let done = plan.transform_up_with_subqueries(|node| {
        let mut schema: DFSchemaRef = Arc::new(merge_schema(&node.inputs()));
        if node.inputs().is_empty() {
            schema = Arc::clone(node.schema());
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|e| {
            let name = names.save(&e);
            let done = e.transform_up(|e| read(e, &schema))?;
            Ok(done.update_data(|e| name.restore(e)))
        })
    })?;
    Ok(done.data)
}

fn read(e: Expr, schema: &DFSchemaRef) -> Result<Transformed<Expr>> {
    let (from, to) = match &e {
        Expr::Cast(c) => (&c.expr, c.field.data_type()),
        Expr::TryCast(c) => (&c.expr, c.field.data_type()),
        _ => return Ok(Transformed::no(e)),
    };
    let Some(kind) = Kind::of(to) else { return Ok(Transformed::no(e)) };
    let new = match from.as_ref() {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => match kind.fixed(text) {
            Some(text) => Expr::Literal(ScalarValue::Utf8(Some(text)), metadata.clone()),
            None => return Ok(Transformed::no(e)),
        },
        Expr::ScalarFunction(f) if f.func.name() == READABLE => return Ok(Transformed::no(e)),
        other => match other.get_type(schema) {
            Ok(DataType::Utf8) => kind.function().call(vec![other.clone()]),
            _ => return Ok(Transformed::no(e)),
        },
    };
    Ok(Transformed::yes(match e {
        Expr::Cast(mut c) => {
            *c.expr = new;
            Expr::Cast(c)
        }
        Expr::TryCast(mut c) => {
            *c.expr = new;
            Expr::TryCast(c)
        }
        other => other,
    }))
}

pub(crate) const READABLE: &str = "__readable";

impl Kind {
    fn function(self) -> &'static ScalarUDF {
        static TIMESTAMP: LazyLock<ScalarUDF> = LazyLock::new(|| Readable::udf(Kind::Timestamp));
        static INTERVAL: LazyLock<ScalarUDF> = LazyLock::new(|| Readable::udf(Kind::Interval));
        match self {
            Self::Timestamp => &TIMESTAMP,
            Self::Interval => &INTERVAL,
        }
    }
}

/// [`readable`] as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Readable {
    kind: Kind,
    signature: Signature,
}

impl Readable {
    fn udf(kind: Kind) -> ScalarUDF {
        let signature = Signature::exact(vec![DataType::Utf8], Volatility::Immutable);
        ScalarUDF::new_from_impl(Self { kind, signature })
    }
}

impl ScalarUDFImpl for Readable {
    fn name(&self) -> &str {
        READABLE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(a)] => Ok(ColumnarValue::Array(self.kind.fix(&cast(a, &DataType::Utf8)?))),
            [ColumnarValue::Scalar(ScalarValue::Utf8(Some(t)))] => {
                let text = self.kind.fixed(t).unwrap_or_else(|| t.clone());
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))))
            }
            [one] => Ok(one.clone()),
            _ => exec_err!("{READABLE} takes one text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_put_where_they_are_left_out() {
        for (text, expected) in [
            ("2024-01-02 10:00", Some("2024-01-02 10:00:00")),
            (" 2024-01-02T9:05Z", Some(" 2024-01-02T9:05:00Z")),
            ("2024-01-02 10:00+02", Some("2024-01-02 10:00:00+02")),
            ("2024-01-02 10:00 Europe/Paris", Some("2024-01-02 10:00:00 Europe/Paris")),
            ("2024-01-02 10:00:01", None),
            ("2024-01-02 10", None),
            ("2024-01-02", None),
            ("10:00", None),
            ("2024-01-02 10:0", None),
            ("2024-01-02 10:00x", None),
            ("ä ü:00", None),
            ("", None),
        ] {
            assert_eq!(full(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn times_of_day_in_intervals_are_spelled_out() {
        for (text, expected) in [
            ("02:30", Some("02 hours 30 minutes 0 seconds")),
            ("1 mon -2 days -01:02:03.5", Some("1 mon -2 days -01 hours -02 minutes -03.5 seconds")),
            ("1 day 25:00:00", Some("1 day 25 hours 00 minutes 00 seconds")),
            ("1 day", None),
            ("1:2:3:4", None),
            ("1:2:60", None),
            ("a:b", None),
            (":", None),
        ] {
            assert_eq!(spelled_out(text).as_deref(), expected, "{text}");
        }
    }
}
