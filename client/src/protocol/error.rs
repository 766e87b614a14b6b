//! What can go wrong for a client: an error of a statement, or of the way to the server.

use std::fmt;

use arrow_flight::error::FlightError;
use tonic::{Code, Status};

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The statement is not valid SQL.
    Syntax,
    /// A name does not exist, or no longer.
    NotFound,
    /// A name exists already.
    AlreadyExists,
    /// Types do not fit.
    Type,
    /// Valid, but the server cannot do it; the construct is named.
    Unsupported,
    /// An option or argument has a bad value.
    InvalidArgument,
    /// Others depend on the object.
    DependencyExists,
    /// A constraint (primary key, NOT NULL) is violated.
    Constraint,
    /// The server could not read or write data.
    Io,
    /// Evaluating an expression failed.
    Evaluation,
    /// A limit was reached.
    Limit,
    /// The statement was cancelled.
    Cancelled,
    /// A defect.
    Internal,
    /// The server cannot be reached, or the connection was lost: trying again may help. Whether a
    /// statement was carried out is not known.
    Unavailable,
}

/// Names of kinds, as the server tells them.
const NAMES: [(&str, Kind); 13] = [
    ("syntax", Kind::Syntax),
    ("not_found", Kind::NotFound),
    ("already_exists", Kind::AlreadyExists),
    ("type", Kind::Type),
    ("unsupported", Kind::Unsupported),
    ("invalid_argument", Kind::InvalidArgument),
    ("dependency_exists", Kind::DependencyExists),
    ("constraint", Kind::Constraint),
    ("io", Kind::Io),
    ("evaluation", Kind::Evaluation),
    ("limit", Kind::Limit),
    ("cancelled", Kind::Cancelled),
    ("internal", Kind::Internal),
];

/// An error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    position: Option<(u64, u64)>,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, position: None }
    }

    /// Adds what can be done.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What can be done.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Line and column in the statement, from 1.
    pub fn position(&self) -> Option<(u64, u64)> {
        self.position
    }

    /// The server has answered what makes no sense.
    pub(super) fn protocol(what: impl fmt::Display) -> Self {
        Self::new(Kind::Internal, format!("the server's answer cannot be understood: {what}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((line, column)) = self.position {
            write!(f, " (line {line}, column {column})")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let told = status.metadata().get_bin("spate-error-bin").and_then(|v| v.to_bytes().ok());
        if let Some(parts) = told.and_then(|b| serde_json::from_slice::<serde_json::Value>(&b).ok()) {
            let text = |name: &str| parts[name].as_str();
            let kind = NAMES.iter().find(|(n, _)| Some(*n) == text("kind")).map_or(Kind::Internal, |(_, k)| *k);
            return Self {
                kind,
                message: text("message").unwrap_or(status.message()).to_owned(),
                hint: text("hint").map(str::to_owned),
                position: parts["line"].as_u64().zip(parts["column"].as_u64()),
            };
        }
        // The server tells the parts of its own errors: this is one of the connection, or of another
        // server.
        let kind = match status.code() {
            Code::Unavailable | Code::Unknown | Code::Aborted | Code::DeadlineExceeded => Kind::Unavailable,
            Code::Internal | Code::Cancelled => Kind::Unavailable,
            Code::Unimplemented => Kind::Unsupported,
            Code::NotFound => Kind::NotFound,
            Code::ResourceExhausted => Kind::Limit,
            Code::InvalidArgument => Kind::InvalidArgument,
            _ => Kind::Internal,
        };
        Self::new(kind, status.message())
    }
}

impl From<FlightError> for Error {
    fn from(e: FlightError) -> Self {
        match e {
            FlightError::Tonic(status) => (*status).into(),
            other => Self::protocol(other),
        }
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(e: arrow::error::ArrowError) -> Self {
        Self::protocol(e)
    }
}

impl From<prost::DecodeError> for Error {
    fn from(e: prost::DecodeError) -> Self {
        Self::protocol(e)
    }
}

impl From<tonic::transport::Error> for Error {
    fn from(e: tonic::transport::Error) -> Self {
        let mut text = e.to_string();
        let mut source = std::error::Error::source(&e);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::new(Kind::Unavailable, text)
    }
}
