//! Messages of the Flight protocol for session options, which arrow-flight 59.3 does not have. They
//! are those of `Flight.proto` in Apache Arrow.

use std::collections::HashMap;

/// Value of a session option.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionOptionValue {
    /// The value; none takes the option back to its default.
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<OptionValue>,
}

/// The forms of a value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum OptionValue {
    /// Text.
    #[prost(string, tag = "1")]
    String(String),
    /// True or false.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(sfixed64, tag = "3")]
    Int64(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Several texts.
    #[prost(message, tag = "5")]
    StringList(StringList),
}

/// Several texts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StringList {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `SetSessionOptions`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsRequest {
    /// New values by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// What became of the options that could not be set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetSessionOptionsResult {
    /// Why, by name.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, SetError>,
}

/// Why an option could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct SetError {
    /// 1: there is no such option; 2: it does not take the value; 3: something else.
    #[prost(int32, tag = "1")]
    pub value: i32,
}

/// All options.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSessionOptionsResult {
    /// Values by name.
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// What became of a session that was to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct CloseSessionResult {
    /// 1: closed.
    #[prost(int32, tag = "1")]
    pub status: i32,
}
