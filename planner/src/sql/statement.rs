//! Statements: what the parser hands to the session, names already folded to lower case
//! unless quoted, options already checked for form. Queries and expressions stay
//! sqlparser's, with positions that count from the start of the whole text.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast;

/// One statement of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// What it says.
    pub statement: Statement,
    /// Where it stands in the text, in bytes, without the semicolon.
    pub range: Range<usize>,
    /// The text of the statement itself.
    pub text: String,
}

/// `WITH (…)` options: keys in lower case, values as text.
pub type Options = BTreeMap<String, String>;

/// A name, perhaps with its schema, folded.
#[derive(Debug, Clone)]
pub struct Name {
    /// The schema, if the name was qualified.
    pub schema: Option<String>,
    /// The name itself.
    pub name: String,
    /// Line and column in the whole text, from 1. Not part of equality.
    pub position: Option<(u64, u64)>,
}

impl Name {
    /// A name without schema and position.
    pub fn bare(name: impl Into<String>) -> Self {
        Self { schema: None, name: name.into(), position: None }
    }

    /// A name with its schema.
    pub fn qualified(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), name: name.into(), position: None }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema && self.name == other.name
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A column of `CREATE TABLE` or `CREATE SOURCE`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDef {
    /// Its name.
    pub name: String,
    /// Its type as written.
    pub sql_type: ast::DataType,
    /// Its type as the engine holds it.
    pub data_type: DataType,
    /// Whether NULL is allowed; false for primary key columns too.
    pub nullable: bool,
    /// `DEFAULT e`.
    pub default: Option<ast::Expr>,
    /// `GENERATED ALWAYS AS (e)`: computed from the other columns.
    pub generated: Option<ast::Expr>,
    /// Whether it belongs to the primary key, however that was written.
    pub primary_key: bool,
}

/// `WATERMARK FOR column AS column - delay`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatermarkDef {
    /// The event-time column.
    pub column: String,
    /// How far the watermark stays behind the greatest event time, in microseconds, not negative.
    pub delay_us: i64,
}

/// What an insert does when the primary key exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnConflict {
    /// The statement fails.
    #[default]
    Error,
    /// The new row takes the old one's place.
    Overwrite,
    /// The old row stays.
    Nothing,
}

/// `FORMAT x ENCODE y (…)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatClause {
    /// How records speak of changes, in lower case: `plain`, `upsert`, `debezium`.
    pub format: String,
    /// How records are written, in lower case: `json`, `csv`, `parquet`, `arrow`, `avro`.
    pub encode: String,
    /// Options of the encoding.
    pub options: Options,
}

/// `CREATE TABLE` and `CREATE SOURCE`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// Its name.
    pub name: Name,
    /// Whether this is `CREATE SOURCE`: rows of a connector, not stored.
    pub source: bool,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Columns; empty if they are to be inferred.
    pub columns: Vec<ColumnDef>,
    /// Columns of the primary key in the order of the key, as indices into `columns`.
    pub primary_key: Vec<usize>,
    /// `WATERMARK FOR`.
    pub watermark: Option<WatermarkDef>,
    /// `APPEND ONLY`.
    pub append_only: bool,
    /// `ON CONFLICT`.
    pub on_conflict: OnConflict,
    /// `WITH (…)`.
    pub options: Options,
    /// `FORMAT … ENCODE …`.
    pub format: Option<FormatClause>,
}

/// `CREATE VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// Its name.
    pub name: Name,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// New names for the leading columns; often empty.
    pub columns: Vec<String>,
    /// The query.
    pub query: Box<ast::Query>,
    /// The query as written.
    pub query_text: String,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterializedView {
    /// Its name.
    pub name: Name,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// New names for the leading columns; often empty.
    pub columns: Vec<String>,
    /// `WITH (…)`.
    pub options: Options,
    /// The query.
    pub query: Box<ast::Query>,
    /// The query as written, without `EMIT ON WINDOW CLOSE`.
    pub query_text: String,
    /// `EMIT ON WINDOW CLOSE`.
    pub emit_on_window_close: bool,
}

/// What a sink writes, or a subscription follows.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A relation by name.
    Relation(Name),
    /// A query.
    Query {
        /// The query.
        query: Box<ast::Query>,
        /// The query as written, without `EMIT ON WINDOW CLOSE`.
        text: String,
        /// `EMIT ON WINDOW CLOSE`.
        emit_on_window_close: bool,
    },
}

/// `CREATE SINK`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSink {
    /// Its name.
    pub name: Name,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// What it writes.
    pub input: Input,
    /// `WITH (…)`.
    pub options: Options,
    /// `FORMAT … ENCODE …`.
    pub format: Option<FormatClause>,
}

/// `CREATE TABLE … AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTableAs {
    /// Its name.
    pub name: Name,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// New names for the leading columns; often empty.
    pub columns: Vec<String>,
    /// The query.
    pub query: Box<ast::Query>,
    /// Whether its rows are written; false for `WITH NO DATA`.
    pub with_data: bool,
}

/// `CREATE FUNCTION … LANGUAGE sql`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// Its name.
    pub name: Name,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// Names (empty for those without) and types of its arguments.
    pub args: Vec<(String, DataType)>,
    /// Type of its result.
    pub returns: DataType,
    /// `STRICT`.
    pub strict: bool,
    /// Its value.
    pub body: ast::Expr,
}

/// `INSERT INTO`.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The table written to.
    pub table: Name,
    /// Its alias, for `RETURNING`.
    pub alias: Option<String>,
    /// Columns in the order of the query's; empty means all.
    pub columns: Vec<String>,
    /// The rows: `VALUES` or `SELECT`; `None` for `DEFAULT VALUES`.
    pub source: Option<Box<ast::Query>>,
    /// `RETURNING`; often empty.
    pub returning: Vec<ast::SelectItem>,
}

/// `UPDATE`.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The table.
    pub table: Name,
    /// Its alias.
    pub alias: Option<String>,
    /// New values by column.
    pub assignments: Vec<(String, ast::Expr)>,
    /// `FROM`; often empty.
    pub from: Vec<ast::TableWithJoins>,
    /// Which rows; `None` means all.
    pub selection: Option<ast::Expr>,
    /// `RETURNING`; often empty.
    pub returning: Vec<ast::SelectItem>,
}

/// `DELETE`.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// The table.
    pub table: Name,
    /// Its alias.
    pub alias: Option<String>,
    /// `USING`; often empty.
    pub using: Vec<ast::TableWithJoins>,
    /// Which rows; `None` means all.
    pub selection: Option<ast::Expr>,
    /// `RETURNING`; often empty.
    pub returning: Vec<ast::SelectItem>,
}

/// `COPY t FROM 'path'`.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// The table.
    pub table: Name,
    /// Columns in the order of the file's; empty means all.
    pub columns: Vec<String>,
    /// The file, as written.
    pub path: String,
    /// `WITH (…)`.
    pub options: Options,
}

/// What can be created, and so dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropKind {
    /// `SCHEMA`
    Schema,
    /// `TABLE`
    Table,
    /// `SOURCE`
    Source,
    /// `VIEW`
    View,
    /// `MATERIALIZED VIEW`
    MaterializedView,
    /// `SINK`
    Sink,
    /// `FUNCTION`
    Function,
    /// `INDEX`
    Index,
}

impl fmt::Display for DropKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schema => "schema",
            Self::Table => "table",
            Self::Source => "source",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
            Self::Function => "function",
            Self::Index => "index",
        })
    }
}

/// `CREATE INDEX i ON t (columns)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndex {
    /// Its name, without a schema; `None` to make one.
    pub name: Option<String>,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The table or materialized view.
    pub on: Name,
    /// Its columns, in order.
    pub columns: Vec<String>,
}

/// `DROP kind names`.
#[derive(Debug, Clone, PartialEq)]
pub struct Drop {
    /// What the names name.
    pub kind: DropKind,
    /// What to drop, at least one. A schema's name stands in `name`.
    pub names: Vec<Name>,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// `CASCADE`: drop what depends on it too.
    pub cascade: bool,
}

/// What `ALTER` changes.
#[derive(Debug, Clone, PartialEq)]
pub enum AlterAction {
    /// `RENAME TO name`.
    Rename(String),
    /// `SET SCHEMA name`.
    SetSchema(String),
    /// `ADD COLUMN`.
    AddColumn {
        /// The column.
        column: Box<ColumnDef>,
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
    },
    /// `DROP COLUMN`.
    DropColumn {
        /// The column.
        name: String,
        /// `IF EXISTS`.
        if_exists: bool,
    },
    /// `RENAME COLUMN`.
    RenameColumn {
        /// Its name now.
        from: String,
        /// Its name afterwards.
        to: String,
    },
}

/// `ALTER kind name action`.
#[derive(Debug, Clone, PartialEq)]
pub struct Alter {
    /// What the name names.
    pub kind: DropKind,
    /// The object.
    pub name: Name,
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// What to change.
    pub action: AlterAction,
}

/// `COMMENT ON`.
#[derive(Debug, Clone, PartialEq)]
pub struct Comment {
    /// What the name names; `None` for the relation of a column.
    pub kind: Option<DropKind>,
    /// The object.
    pub object: Name,
    /// The column, if the comment is on one.
    pub column: Option<String>,
    /// The comment; `None` takes it away.
    pub text: Option<String>,
}

/// `SUBSCRIBE [TO]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// What to follow.
    pub target: Input,
    /// Whether the rows that are there come first; true unless `NO SNAPSHOT` was said.
    pub snapshot: bool,
    /// `AS OF EPOCH n`.
    pub as_of: Option<u64>,
}

/// What `EXPLAIN` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExplainMode {
    /// DataFusion's optimised logical plan.
    Logical,
    /// The stream plan.
    #[default]
    Stream,
    /// The stream plan cut into fragments, with exchanges.
    Fragments,
    /// What failures would cost, and how tasks would be protected.
    Fault,
}

/// `EXPLAIN`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// What to show.
    pub mode: ExplainMode,
    /// `VERBOSE`.
    pub verbose: bool,
    /// `FORMAT JSON`.
    pub json: bool,
    /// A query, or a statement that holds one.
    pub statement: Box<Statement>,
    /// `EMIT ON WINDOW CLOSE` of a query; a statement that holds one has its own.
    pub emit_on_window_close: bool,
}

/// What `SHOW …` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShowKind {
    /// `SHOW SCHEMAS`
    Schemas,
    /// `SHOW TABLES`
    Tables,
    /// `SHOW SOURCES`
    Sources,
    /// `SHOW VIEWS`
    Views,
    /// `SHOW MATERIALIZED VIEWS`
    MaterializedViews,
    /// `SHOW SINKS`
    Sinks,
    /// `SHOW FUNCTIONS`
    Functions,
    /// `SHOW INDEXES`
    Indexes,
    /// `SHOW JOBS`
    Jobs,
    /// `SHOW WORKERS`
    Workers,
}

/// A job, as `CANCEL JOB` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRef {
    /// By number.
    Id(u64),
    /// By the name of its view or sink.
    Name(Name),
}

/// Every statement there is.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE TABLE`, `CREATE SOURCE`
    CreateTable(CreateTable),
    /// `CREATE TABLE AS`
    CreateTableAs(CreateTableAs),
    /// `CREATE VIEW`
    CreateView(CreateView),
    /// `CREATE MATERIALIZED VIEW`
    CreateMaterializedView(CreateMaterializedView),
    /// `CREATE SINK`
    CreateSink(CreateSink),
    /// `CREATE FUNCTION`
    CreateFunction(CreateFunction),
    /// `CREATE INDEX`
    CreateIndex(CreateIndex),
    /// `CREATE SCHEMA`
    CreateSchema {
        /// Its name.
        name: String,
        /// `IF NOT EXISTS`.
        if_not_exists: bool,
    },
    /// `DROP`
    Drop(Drop),
    /// `ALTER`
    Alter(Alter),
    /// `COMMENT ON`
    Comment(Comment),
    /// `INSERT`
    Insert(Insert),
    /// `UPDATE`
    Update(Update),
    /// `DELETE`
    Delete(Delete),
    /// `TRUNCATE`
    Truncate(Vec<Name>),
    /// `COPY … FROM`
    Copy(Copy),
    /// `FLUSH`: wait until all that was written is visible.
    Flush,
    /// `SELECT`, `VALUES`, `WITH`, `TABLE t`
    Query(Box<ast::Query>),
    /// `SUBSCRIBE`
    Subscribe(Subscribe),
    /// `EXPLAIN`
    Explain(Explain),
    /// `SHOW TABLES` and its like
    ShowObjects {
        /// What to list.
        kind: ShowKind,
        /// `FROM schema`.
        schema: Option<String>,
    },
    /// `SHOW CREATE TABLE t` and its like
    ShowCreate {
        /// What the name must be; `None` for `SHOW CREATE t`.
        kind: Option<DropKind>,
        /// The object.
        name: Name,
    },
    /// `SHOW variable`
    ShowVariable(String),
    /// `SHOW ALL`
    ShowAll,
    /// `DESCRIBE t`, `SHOW COLUMNS FROM t`
    Describe(Name),
    /// `SET name = value`
    Set {
        /// The variable, in lower case.
        name: String,
        /// Its value as text; several are joined by `, `.
        value: String,
    },
    /// `RESET name`, `SET name TO DEFAULT`; `None` for `RESET ALL`
    Reset(Option<String>),
    /// `CANCEL JOB`
    CancelJob(JobRef),
}

impl Statement {
    /// Whether it changes the catalog.
    pub fn defines(&self) -> bool {
        matches!(
            self,
            Self::CreateTable(_)
                | Self::CreateTableAs(_)
                | Self::CreateView(_)
                | Self::CreateMaterializedView(_)
                | Self::CreateSink(_)
                | Self::CreateFunction(_)
                | Self::CreateIndex(_)
                | Self::CreateSchema { .. }
                | Self::Alter(_)
                | Self::Comment(_)
                | Self::Drop(_)
        )
    }

    /// The statement's leading words in capitals, as a command tag and in messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::CreateTable(t) if t.source => "CREATE SOURCE",
            Self::CreateTable(_) => "CREATE TABLE",
            Self::CreateTableAs(_) => "CREATE TABLE AS",
            Self::CreateView(_) => "CREATE VIEW",
            Self::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW",
            Self::CreateSink(_) => "CREATE SINK",
            Self::CreateFunction(_) => "CREATE FUNCTION",
            Self::CreateIndex(_) => "CREATE INDEX",
            Self::CreateSchema { .. } => "CREATE SCHEMA",
            Self::Drop(d) => match d.kind {
                DropKind::Schema => "DROP SCHEMA",
                DropKind::Table => "DROP TABLE",
                DropKind::Source => "DROP SOURCE",
                DropKind::View => "DROP VIEW",
                DropKind::MaterializedView => "DROP MATERIALIZED VIEW",
                DropKind::Sink => "DROP SINK",
                DropKind::Function => "DROP FUNCTION",
                DropKind::Index => "DROP INDEX",
            },
            Self::Alter(a) => match a.kind {
                DropKind::Schema => "ALTER SCHEMA",
                DropKind::Table => "ALTER TABLE",
                DropKind::Source => "ALTER SOURCE",
                DropKind::View => "ALTER VIEW",
                DropKind::MaterializedView => "ALTER MATERIALIZED VIEW",
                DropKind::Sink => "ALTER SINK",
                DropKind::Function => "ALTER FUNCTION",
                DropKind::Index => "ALTER INDEX",
            },
            Self::Comment(_) => "COMMENT",
            Self::Insert(_) => "INSERT",
            Self::Update(_) => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Truncate(_) => "TRUNCATE TABLE",
            Self::Copy(_) => "COPY",
            Self::Flush => "FLUSH",
            Self::Query(_) => "SELECT",
            Self::Subscribe(_) => "SUBSCRIBE",
            Self::Explain(_) => "EXPLAIN",
            Self::ShowObjects { .. } | Self::ShowCreate { .. } | Self::ShowVariable(_) | Self::ShowAll => "SHOW",
            Self::Describe(_) => "DESCRIBE",
            Self::Set { .. } => "SET",
            Self::Reset(_) => "RESET",
            Self::CancelJob(_) => "CANCEL JOB",
        }
    }
}
