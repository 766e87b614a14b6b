//! `\h`: the forms of the statements, in short.

/// Statement and its forms.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "CREATE TABLE",
        "CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name (\n  column type [PRIMARY KEY] [NOT NULL] [DEFAULT e], ...,\n  \
         [PRIMARY KEY (column, ...),]\n  [WATERMARK FOR column AS column - INTERVAL '...']\n) [APPEND ONLY] \
         [ON CONFLICT DO OVERWRITE | NOTHING] [WITH (connector = '...', ...)] [FORMAT ... ENCODE ...]",
    ),
    (
        "CREATE SOURCE",
        "CREATE SOURCE [IF NOT EXISTS] name [(column type, ..., [WATERMARK FOR ...])]\n  \
         WITH (connector = '...', ...) [FORMAT ... ENCODE ...]",
    ),
    ("CREATE VIEW", "CREATE [OR REPLACE] VIEW name [(column, ...)] AS query"),
    (
        "CREATE MATERIALIZED VIEW",
        "CREATE MATERIALIZED VIEW name [(column, ...)] [WITH (option = value, ...)] AS query [EMIT ON WINDOW CLOSE]",
    ),
    ("CREATE SINK", "CREATE SINK name FROM view | AS query WITH (connector = '...', ...) [FORMAT ... ENCODE ...]"),
    ("CREATE SCHEMA", "CREATE SCHEMA [IF NOT EXISTS] name"),
    ("DROP", "DROP TABLE | SOURCE | VIEW | MATERIALIZED VIEW | SINK | SCHEMA [IF EXISTS] name [CASCADE]"),
    ("INSERT", "INSERT INTO table [(column, ...)] VALUES (...), ... | query [RETURNING e, ...]"),
    ("UPDATE", "UPDATE table SET column = e, ... [WHERE condition]"),
    ("DELETE", "DELETE FROM table [WHERE condition]"),
    ("FLUSH", "FLUSH\n  waits until everything written so far is in all materialized views"),
    ("SELECT", "[WITH ...] SELECT e, ... FROM ... [WHERE] [GROUP BY] [HAVING] [ORDER BY] [LIMIT]"),
    ("SUBSCRIBE", "SUBSCRIBE [TO] view | query [WITH SNAPSHOT | NO SNAPSHOT]\n  changes as they come, until Ctrl-C"),
    ("EXPLAIN", "EXPLAIN [VERBOSE | ANALYZE] statement"),
    ("SHOW", "SHOW TABLES | SOURCES | VIEWS | MATERIALIZED VIEWS | SINKS | JOBS | SCHEMAS | variable"),
    ("DESCRIBE", "DESCRIBE name"),
    ("SET", "SET variable = value"),
];

/// The list of statements, or the forms of those whose names begin with `topic`.
pub fn help(topic: &str) -> String {
    let topic = topic.trim().trim_end_matches(';').to_uppercase();
    if topic.is_empty() {
        let names: Vec<&str> = STATEMENTS.iter().map(|(name, _)| *name).collect();
        return format!("Statements (\\h NAME shows one):\n  {}\n", names.join("\n  "));
    }
    let found: Vec<String> =
        STATEMENTS.iter().filter(|(name, _)| name.starts_with(&topic)).map(|(_, form)| format!("{form}\n")).collect();
    if found.is_empty() { format!("no help for \"{topic}\"; \\h lists all statements\n") } else { found.join("\n") }
}
