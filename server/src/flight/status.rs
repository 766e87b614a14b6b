//! Errors as gRPC statuses: a code, a text for people, and the same in parts for programs.

use spate_engine::types::{ErrorKind, SpateError};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::{Code, Status};

/// Trailer with the parts of an error, as JSON: `kind`, `message`, `hint`, `line`, `column`.
pub const ERROR: &str = "spate-error-bin";

/// Longest message and hint; what goes into trailers is bounded.
const MAX_TEXT: usize = 4000;

/// Kinds of errors, their names, and their codes.
pub const KINDS: [(ErrorKind, &str, Code); 13] = [
    (ErrorKind::Syntax, "syntax", Code::InvalidArgument),
    (ErrorKind::NotFound, "not_found", Code::NotFound),
    (ErrorKind::AlreadyExists, "already_exists", Code::AlreadyExists),
    (ErrorKind::Type, "type", Code::InvalidArgument),
    (ErrorKind::Unsupported, "unsupported", Code::Unimplemented),
    (ErrorKind::InvalidArgument, "invalid_argument", Code::InvalidArgument),
    (ErrorKind::DependencyExists, "dependency_exists", Code::FailedPrecondition),
    (ErrorKind::Constraint, "constraint", Code::FailedPrecondition),
    (ErrorKind::Io, "io", Code::FailedPrecondition),
    (ErrorKind::Evaluation, "evaluation", Code::OutOfRange),
    (ErrorKind::Limit, "limit", Code::ResourceExhausted),
    (ErrorKind::Cancelled, "cancelled", Code::Cancelled),
    (ErrorKind::Internal, "internal", Code::Internal),
];

/// Place of a kind in [`KINDS`].
pub fn index(kind: ErrorKind) -> usize {
    KINDS.iter().position(|(k, _, _)| *k == kind).unwrap_or(KINDS.len() - 1)
}

fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text)
}

/// The status of an error: `message (line 1, column 8)`, and the hint on a line of its own.
pub fn of(error: &SpateError) -> Status {
    let (_, name, code) = KINDS[index(error.kind())];
    let message = short(error.message());
    let mut text = message.to_owned();
    let mut parts = serde_json::json!({ "kind": name, "message": message });
    if let Some((line, column)) = error.position() {
        text.push_str(&format!(" (line {line}, column {column})"));
        parts["line"] = line.into();
        parts["column"] = column.into();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {}", short(hint)));
        parts["hint"] = short(hint).into();
    }
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(ERROR, BinaryMetadataValue::from_bytes(parts.to_string().as_bytes()));
    Status::with_metadata(code, text, metadata)
}

/// What new statements and running streams are told when the server stops.
pub fn stopping() -> Status {
    Status::unavailable("the server is shutting down")
}

/// What a request is told that Flight SQL has and Spate has not.
pub fn unsupported(what: &str, hint: &str) -> Status {
    of(&SpateError::unsupported(format!("{what} are not supported")).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_all_parts() {
        let e = SpateError::new(ErrorKind::NotFound, "no table").with_hint("make one").at(2, 7);
        let status = of(&e);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "no table (line 2, column 7)\nhint: make one");
        let parts = status.metadata().get_bin(ERROR).unwrap().to_bytes().unwrap();
        let parts: serde_json::Value = serde_json::from_slice(&parts).unwrap();
        assert_eq!(parts["kind"], "not_found");
        assert_eq!((parts["line"].as_u64(), parts["column"].as_u64()), (Some(2), Some(7)));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = of(&SpateError::internal("é".repeat(MAX_TEXT)));
        assert_eq!(status.message().len(), MAX_TEXT);
    }
}
