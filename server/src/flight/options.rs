//! Session options of the Flight protocol: they are the session's variables, as SET and SHOW have
//! them, and two that clients know by other names, `catalog` and `schema`.

use std::collections::HashMap;

use spate_engine::types::{ErrorKind, Result, SpateError};
use spate_planner::catalog::info::DATABASE;

use super::proto::{OptionValue, SessionOptionValue, SetError, SetSessionOptionsRequest};
use crate::Session;

/// There is no such option.
const INVALID_NAME: i32 = 1;
/// It does not take the value.
const INVALID_VALUE: i32 = 2;

fn text(value: &OptionValue) -> String {
    match value {
        OptionValue::String(t) => t.clone(),
        OptionValue::Bool(b) => b.to_string(),
        OptionValue::Int64(n) => n.to_string(),
        OptionValue::Double(f) => f.to_string(),
        OptionValue::StringList(l) => l.values.join(", "),
    }
}

/// Sets options; tells of those that could not be set, and sets the others.
pub fn set(session: &mut Session, request: &SetSessionOptionsRequest) -> HashMap<String, SetError> {
    let mut errors = HashMap::new();
    for (name, value) in &request.session_options {
        let done = match (name.as_str(), &value.option_value) {
            ("catalog", None) => Ok(()),
            ("catalog", Some(v)) if text(v) == DATABASE => Ok(()),
            ("catalog", Some(_)) => Err(SpateError::invalid("there is one catalog")),
            ("schema", value) => session.set_variable("search_path", value.as_ref().map(text).as_deref()),
            (name, value) => session.set_variable(name, value.as_ref().map(text).as_deref()),
        };
        if let Err(e) = done {
            let value = if e.kind() == ErrorKind::NotFound { INVALID_NAME } else { INVALID_VALUE };
            errors.insert(name.clone(), SetError { value });
        }
    }
    errors
}

/// All options.
pub fn all(session: &Session) -> Result<HashMap<String, SessionOptionValue>> {
    let value = |t: String| SessionOptionValue { option_value: Some(OptionValue::String(t)) };
    let mut out: HashMap<String, SessionOptionValue> =
        session.all_variables()?.into_iter().map(|(name, v)| (name.to_owned(), value(v))).collect();
    if let Some(path) = session.variable("search_path") {
        out.insert("schema".into(), value(path.split(',').next().unwrap_or_default().trim().to_owned()));
    }
    out.insert("catalog".into(), value(DATABASE.to_owned()));
    Ok(out)
}
