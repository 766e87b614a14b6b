//! Statements written anew from what the catalog knows, after ALTER.

use spate_engine::types::error::{Result, SpateError};

use super::object::Object;
use crate::sql::statement::{Name, OnConflict, Statement};
use crate::sql::{parse_one, quote, types};

const US_PER_SECOND: i64 = 1_000_000;

/// `schema.name` as it must be written, with the default schema left out.
fn qualified(schema: &str, name: &str) -> String {
    if schema == super::DEFAULT_SCHEMA { quote(name) } else { format!("{}.{}", quote(schema), quote(name)) }
}

/// The `CREATE TABLE` of a table that DML writes.
pub fn create_table(object: &Object) -> Result<String> {
    let (Some(relation), Some(details)) = (&object.relation, &object.table) else {
        return Err(SpateError::internal(format!("\"{}\" is no table", object.name)));
    };
    let mut items = Vec::with_capacity(details.columns.len() + 2);
    for c in &details.columns {
        let mut item = format!("{} {}", quote(&c.name), types::display(&c.data_type));
        if !c.nullable {
            item.push_str(" NOT NULL");
        }
        if let Some(d) = &c.default {
            item.push_str(&format!(" DEFAULT {d}"));
        }
        if let Some(g) = &c.generated {
            item.push_str(&format!(" GENERATED ALWAYS AS ({g}) STORED"));
        }
        items.push(item);
    }
    let name = |i: &usize| details.columns.get(*i).map(|c| quote(&c.name)).unwrap_or_default();
    if !details.primary_key.is_empty() {
        let names: Vec<String> = details.primary_key.iter().map(name).collect();
        items.push(format!("PRIMARY KEY ({})", names.join(", ")));
    }
    if let Some(w) = relation.watermark {
        let column = name(&w.column);
        let delay = match w.delay_us {
            0 => String::new(),
            d if d % US_PER_SECOND == 0 => format!(" - INTERVAL '{} seconds'", d / US_PER_SECOND),
            d => format!(" - INTERVAL '{d} microseconds'"),
        };
        items.push(format!("WATERMARK FOR {column} AS {column}{delay}"));
    }
    let mut sql = format!("CREATE TABLE {} ({})", qualified(&object.schema, &object.name), items.join(", "));
    if relation.append_only {
        sql.push_str(" APPEND ONLY");
    }
    match details.on_conflict {
        OnConflict::Error => {}
        OnConflict::Overwrite => sql.push_str(" ON CONFLICT DO OVERWRITE"),
        OnConflict::Nothing => sql.push_str(" ON CONFLICT DO NOTHING"),
    }
    Ok(sql)
}

/// The `CREATE INDEX` of an index of `on`.
pub fn create_index(index: &Object, on: &Object) -> Result<String> {
    let (Some(details), Some(relation)) = (&index.index, &on.relation) else {
        return Err(SpateError::internal(format!("\"{}\" is no index", index.name)));
    };
    let name = |c: &usize| relation.schema.fields().get(*c).map(|f| quote(f.name())).unwrap_or_default();
    let columns: Vec<String> = details.columns.iter().map(name).collect();
    let on = qualified(&on.schema, &on.name);
    Ok(format!("CREATE INDEX {} ON {on} ({})", quote(&index.name), columns.join(", ")))
}

/// A `CREATE` statement with another name for what it creates.
pub fn renamed(sql: &str, schema: &str, name: &str) -> Result<String> {
    let lost = || SpateError::internal(format!("the name in \"{sql}\" was not found"));
    let written: Option<Name> = match parse_one(sql)?.statement {
        Statement::CreateTable(c) => Some(c.name),
        Statement::CreateTableAs(c) => Some(c.name),
        Statement::CreateView(c) => Some(c.name),
        Statement::CreateMaterializedView(c) => Some(c.name),
        Statement::CreateSink(c) => Some(c.name),
        Statement::CreateFunction(c) => Some(c.name),
        _ => None,
    };
    let (line, column) = written.and_then(|n| n.position).ok_or_else(lost)?;
    let mut start = 0;
    for _ in 1..line {
        start += sql[start..].find('\n').ok_or_else(lost)? + 1;
    }
    let skip = usize::try_from(column).unwrap_or(1).saturating_sub(1);
    start += sql[start..].char_indices().nth(skip).ok_or_else(lost)?.0;
    let end = start + name_length(&sql[start..]);
    Ok(format!("{}{}{}", &sql[..start], qualified(schema, name), &sql[end..]))
}

/// Length of the perhaps qualified name that a text starts with, in bytes.
fn name_length(text: &str) -> usize {
    let mut at = part_length(text);
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        let Some(after) = rest[blank..].strip_prefix('.') else { return at };
        let blank_after = after.len() - after.trim_start().len();
        at += blank + 1 + blank_after;
        at += part_length(&text[at..]);
    }
}

fn part_length(text: &str) -> usize {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut chars = quoted.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            if c == '"' && chars.next_if(|(_, next)| *next == '"').is_none() {
                return i + 2;
            }
        }
        return text.len();
    }
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_name_alone_changes() {
        for (sql, expect) in [
            ("CREATE VIEW v AS SELECT 1 AS v", "CREATE VIEW w AS SELECT 1 AS v"),
            ("create or replace\n  view  \"a \"\"v\" as select 1", "create or replace\n  view  w as select 1"),
            (
                "CREATE SINK s . \"V\" FROM t WITH (connector = 'blackhole')",
                "CREATE SINK w FROM t WITH (connector = 'blackhole')",
            ),
            ("CREATE TABLE IF NOT EXISTS é(a int)", "CREATE TABLE IF NOT EXISTS w(a int)"),
        ] {
            assert_eq!(renamed(sql, "public", "w").unwrap(), expect);
        }
        assert_eq!(renamed("CREATE TABLE t (a int)", "S", "W").unwrap(), "CREATE TABLE \"S\".\"W\" (a int)");
    }
}
