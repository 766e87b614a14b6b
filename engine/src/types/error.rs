//! One small public error: what went wrong, where, and what to do about it.

use std::fmt;

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The statement is not valid SQL.
    Syntax,
    /// A name does not exist.
    NotFound,
    /// A name exists already.
    AlreadyExists,
    /// Types do not fit.
    Type,
    /// Valid, but Spate cannot do it; the construct is named.
    Unsupported,
    /// An option or argument has a bad value.
    InvalidArgument,
    /// Others depend on the object.
    DependencyExists,
    /// A constraint (primary key, NOT NULL) is violated.
    Constraint,
    /// Data could not be read or written.
    Io,
    /// Evaluating an expression failed (division by zero, failed cast).
    Evaluation,
    /// A limit was reached (memory, rows, time).
    Limit,
    /// The user cancelled the statement.
    Cancelled,
    /// A defect in Spate.
    Internal,
}

/// An error with its message and, where known, its position and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpateError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    position: Option<(u64, u64)>,
}

/// Result with [`SpateError`].
pub type Result<T, E = SpateError> = std::result::Result<T, E>;

impl SpateError {
    /// An error of `kind`; the message is lower case, without a full stop, as PostgreSQL's are.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), hint: None, position: None }))
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the place in the statement's text: line and column, both from 1.
    #[must_use]
    pub fn at(mut self, line: u64, column: u64) -> Self {
        self.0.position = Some((line, column));
        self
    }

    /// The same without its place, which was in another text.
    #[must_use]
    pub fn without_position(mut self) -> Self {
        self.0.position = None;
        self
    }

    /// Puts `prefix: ` before the message.
    #[must_use]
    pub fn context(mut self, prefix: impl fmt::Display) -> Self {
        self.0.message = format!("{prefix}: {}", self.0.message);
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Line and column in the statement's text, from 1.
    pub fn position(&self) -> Option<(u64, u64)> {
        self.0.position
    }

    /// A defect in Spate.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Something valid that Spate cannot do, by name.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// A bad option or argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }
}

impl fmt::Display for SpateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for SpateError {}

impl From<arrow::error::ArrowError> for SpateError {
    fn from(e: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError as A;
        let kind = match &e {
            A::DivideByZero | A::ArithmeticOverflow(_) | A::CastError(_) | A::ParseError(_) => ErrorKind::Evaluation,
            A::IoError(..) => ErrorKind::Io,
            _ => ErrorKind::Internal,
        };
        Self::new(kind, e.to_string())
    }
}

/// What helps a SELECT that has no memory left.
pub const MORE_MEMORY: &str = "read or join fewer rows, or raise query_memory_limit";

impl From<datafusion_common::DataFusionError> for SpateError {
    fn from(e: datafusion_common::DataFusionError) -> Self {
        use datafusion_common::DataFusionError as D;
        let root = e.find_root();
        let kind = match root {
            D::ArrowError(a, _) => {
                return SpateError::new(
                    match a.as_ref() {
                        arrow::error::ArrowError::IoError(..) => ErrorKind::Io,
                        _ => ErrorKind::Evaluation,
                    },
                    a.to_string(),
                );
            }
            D::SQL(..) => ErrorKind::Syntax,
            D::Plan(_) => ErrorKind::Type,
            D::SchemaError(..) => ErrorKind::NotFound,
            D::NotImplemented(_) => ErrorKind::Unsupported,
            D::Execution(_) => ErrorKind::Evaluation,
            D::ResourcesExhausted(_) => ErrorKind::Limit,
            D::IoError(_) => ErrorKind::Io,
            D::External(inner) => match inner.downcast_ref::<SpateError>() {
                Some(own) => return own.clone(),
                None => ErrorKind::Internal,
            },
            _ => ErrorKind::Internal,
        };
        let error = Self::new(kind, root.strip_backtrace());
        if kind == ErrorKind::Limit { error.with_hint(MORE_MEMORY) } else { error }
    }
}

impl From<std::io::Error> for SpateError {
    fn from(e: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, e.to_string())
    }
}

impl From<SpateError> for datafusion_common::DataFusionError {
    fn from(e: SpateError) -> Self {
        datafusion_common::DataFusionError::External(Box::new(e))
    }
}
