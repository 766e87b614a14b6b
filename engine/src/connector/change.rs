//! Records that change rows by key, over JSON: `FORMAT UPSERT` and `FORMAT DEBEZIUM`. Each gives
//! rows with one more column, [`CHANGE`], that says what becomes of the key's row.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::DeadLetter;
use super::columns::RowBuilder;
use super::format::Envelope;
use super::json::{Change, Cursor, JsonDecoder, Token, is_blank};
use super::text::Decode;
use super::types::not_null;

/// Name of the column behind the others: 1 sets the row of a key, -1 takes it away.
pub const CHANGE: &str = "__change";
/// The member of an upserted record that says that the row is gone.
pub(super) const DELETED: &str = "__deleted";

/// `schema` with the column of changes behind it. Only keys are NOT NULL: a record that takes a
/// row away need not hold more.
pub(super) fn with_change(schema: &Schema, key: &[usize]) -> SchemaRef {
    let columns = schema.fields().iter().enumerate();
    let mut fields: Vec<Field> = columns.map(|(i, f)| f.as_ref().clone().with_nullable(!key.contains(&i))).collect();
    fields.push(Field::new(CHANGE, DataType::Int16, false));
    Arc::new(Schema::new(fields))
}

/// Decodes changes.
pub(super) struct ChangeDecoder {
    inner: JsonDecoder,
    envelope: Envelope,
    /// Columns that a row must have, if it stays.
    required: Vec<(usize, String)>,
}

type Parts<'a> = std::result::Result<Event<'a>, String>;

#[derive(Default)]
struct Event<'a> {
    payload: Option<Token<'a>>,
    before: Option<Token<'a>>,
    after: Option<Token<'a>>,
    op: Option<Token<'a>>,
}

impl ChangeDecoder {
    /// For rows of `schema`, as the table declares it.
    pub(super) fn new(schema: &Schema, envelope: Envelope) -> Self {
        let fields = schema.fields().iter().enumerate();
        let required = fields.filter(|(_, f)| !f.is_nullable()).map(|(i, f)| (i, not_null(f))).collect();
        Self { inner: JsonDecoder::new(schema), envelope, required }
    }

    fn put(&mut self, stays: bool, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) -> bool {
        let change = match stays {
            true => Change { sign: "1", required: &self.required },
            false => Change { sign: "-1", required: &[] },
        };
        self.inner.object(text, Some(&change), out, letter)
    }

    fn upsert(&mut self, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) {
        let mut deleted = None;
        let scanned = Cursor::new(text).record(&mut |key, _, value| {
            if key == DELETED {
                deleted = Some(value);
            }
        });
        let stays = scanned.and_then(|()| match deleted {
            None | Some(Token::Null | Token::Bool(false) | Token::Text("false", _)) => Ok(true),
            Some(Token::Bool(true) | Token::Text("true", _)) => Ok(false),
            Some(_) => Err(format!("\"{DELETED}\" is neither true nor false")),
        });
        match stays {
            Ok(stays) => {
                self.put(stays, text, out, letter);
            }
            Err(e) => out.dead(letter(e)),
        }
    }

    fn event(&mut self, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) {
        let event = match parts(text) {
            // Where the connector writes schemas too, the event is beside its own.
            Ok(Event { payload: Some(Token::Nested(inner)), .. }) => parts(inner),
            other => other,
        };
        let wrong = |e: &str| letter(format!("not a Debezium event: {e}"));
        let event = match event {
            Ok(event) => event,
            Err(e) => return out.dead(letter(e)),
        };
        let Some(Token::Text(op, _)) = event.op else { return out.dead(wrong("there is no \"op\"")) };
        let before = match event.before {
            Some(Token::Nested(row)) => Some(row),
            _ => None,
        };
        match (op, event.after) {
            ("c" | "r" | "u", Some(Token::Nested(after))) => {
                // An update may change the key: then the row of the old key is gone.
                let at = out.rows();
                let moved = match before {
                    Some(before) if op == "u" => {
                        if !self.put(false, before, out, letter) {
                            return;
                        }
                        true
                    }
                    _ => false,
                };
                if !self.put(true, after, out, letter) && moved {
                    out.take_back(at);
                }
            }
            ("c" | "r" | "u", _) => out.dead(wrong(&format!("op \"{op}\" without a row in \"after\""))),
            ("d", _) => match before {
                Some(before) => {
                    self.put(false, before, out, letter);
                }
                None => out.dead(wrong("op \"d\" without a row in \"before\"")),
            },
            // A logical message, which is about no row.
            ("m", _) => {}
            ("t", _) => out.dead(letter("op \"t\" (TRUNCATE) is not supported".into())),
            (op, _) => out.dead(wrong(&format!("op \"{op}\" is not known"))),
        }
    }
}

/// The members of an event that matter.
fn parts(text: &str) -> Parts<'_> {
    let mut event = Event::default();
    Cursor::new(text).record(&mut |key, _, value| match key {
        "payload" => event.payload = Some(value),
        "before" => event.before = Some(value),
        "after" => event.after = Some(value),
        "op" => event.op = Some(value),
        _ => {}
    })?;
    Ok(event)
}

impl Decode for ChangeDecoder {
    fn decode(&mut self, _: u64, text: &str, out: &mut RowBuilder, letter: &dyn Fn(String) -> DeadLetter) {
        match self.envelope {
            _ if is_blank(text) => {}
            Envelope::Debezium => self.event(text, out, letter),
            _ => self.upsert(text, out, letter),
        }
    }
}
