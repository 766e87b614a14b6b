//! PostgreSQL's operators and functions of `jsonb`, as functions of our own. `json` is another
//! name of `jsonb`, and every `json_…` function one of the `jsonb_…` one.

mod functions;
mod operators;
mod to_json;

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use spate_engine::types::jsonb;

pub(super) use operators::JsonOperators;

/// Makes an array of `jsonb` of a list of values.
pub(super) const OF_LIST: &str = "jsonb_of_list";

/// What a function does. The arguments of all are arrays of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// `->`: the value under a key, or at a place.
    Get,
    /// `->>`: that, as text.
    GetText,
    /// `#>`: the value at a path, given as a list.
    Path,
    /// `#>>`: that, as text.
    PathText,
    /// The value at a path, given as arguments.
    Extract,
    /// That, as text.
    ExtractText,
    /// `@>`.
    Contains,
    /// `?`: whether there is a key, or an element that is this string.
    Exists,
    /// `?|`.
    ExistsAny,
    /// `?&`.
    ExistsAll,
    /// `||`.
    Concat,
    /// `-`: without a key, or without the element at a place.
    Delete,
    Length,
    TypeOf,
    /// The elements of an array, as a list.
    Elements,
    ElementsText,
    /// The keys of an object, as a list.
    Keys,
    BuildObject,
    BuildArray,
    ToJson,
    OfList,
}

const ALL: &[(Kind, &str, &[&str])] = &[
    (Kind::Get, "jsonb_get", &[]),
    (Kind::GetText, "jsonb_get_text", &[]),
    (Kind::Path, "jsonb_path", &[]),
    (Kind::PathText, "jsonb_path_text", &[]),
    (Kind::Extract, "jsonb_extract_path", &["json_extract_path"]),
    (Kind::ExtractText, "jsonb_extract_path_text", &["json_extract_path_text"]),
    (Kind::Contains, "jsonb_contains", &[]),
    (Kind::Exists, "jsonb_exists", &[]),
    (Kind::ExistsAny, "jsonb_exists_any", &[]),
    (Kind::ExistsAll, "jsonb_exists_all", &[]),
    (Kind::Concat, "jsonb_concat", &[]),
    (Kind::Delete, "jsonb_delete", &[]),
    (Kind::Length, "jsonb_array_length", &["json_array_length"]),
    (Kind::TypeOf, "jsonb_typeof", &["json_typeof"]),
    (Kind::Elements, "jsonb_array_elements", &["json_array_elements"]),
    (Kind::ElementsText, "jsonb_array_elements_text", &["json_array_elements_text"]),
    (Kind::Keys, "jsonb_object_keys", &["json_object_keys"]),
    (Kind::BuildObject, "jsonb_build_object", &["json_build_object"]),
    (Kind::BuildArray, "jsonb_build_array", &["json_build_array"]),
    (Kind::ToJson, "to_jsonb", &["to_json"]),
    (Kind::OfList, OF_LIST, &[]),
];

/// Functions in FROM that give a row per value of a list.
pub(super) const GIVE_ROWS: &[(&str, &str)] = &[
    ("jsonb_array_elements", "value"),
    ("json_array_elements", "value"),
    ("jsonb_array_elements_text", "value"),
    ("json_array_elements_text", "value"),
    ("jsonb_object_keys", "jsonb_object_keys"),
    ("json_object_keys", "json_object_keys"),
];

/// Functions that never fail on canonical values.
pub(crate) const INFALLIBLE: &[&str] = &[
    "jsonb_get",
    "jsonb_get_text",
    "jsonb_path",
    "jsonb_path_text",
    "jsonb_extract_path",
    "jsonb_extract_path_text",
    "jsonb_contains",
    "jsonb_exists",
    "jsonb_exists_any",
    "jsonb_exists_all",
    "jsonb_typeof",
    "jsonb_build_array",
    "to_jsonb",
    OF_LIST,
];

static FUNCTIONS: LazyLock<Vec<(Kind, Arc<ScalarUDF>)>> = LazyLock::new(|| {
    let made = |kind| JsonFn { kind, signature: Signature::user_defined(Volatility::Immutable) };
    ALL.iter().map(|(kind, ..)| (*kind, Arc::new(ScalarUDF::new_from_impl(made(*kind))))).collect()
});

/// The functions with their names.
pub(super) fn functions() -> impl Iterator<Item = (&'static str, Arc<ScalarUDF>)> {
    ALL.iter().zip(FUNCTIONS.iter()).flat_map(|((_, name, more), (_, udf))| {
        std::iter::once(*name).chain(more.iter().copied()).map(|n| (n, Arc::clone(udf)))
    })
}

/// A call of one of them.
fn call(kind: Kind, args: Vec<Expr>) -> Result<Expr> {
    match FUNCTIONS.iter().find(|(k, _)| *k == kind) {
        Some((_, udf)) => Ok(udf.call(args)),
        None => plan_err!("a function of jsonb is missing"),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonFn {
    kind: Kind,
    signature: Signature,
}

fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

impl JsonFn {
    /// The type of an argument that is to be one of some.
    fn fit(&self, given: &DataType, wanted: &DataType) -> Result<DataType> {
        let fits = match (given, wanted) {
            (DataType::Null, _) => true,
            (g, w) if g == w => true,
            // A text is read as JSON.
            (DataType::Utf8, w) => *w == jsonb::TYPE,
            (g, DataType::Int64) => g.is_integer(),
            (DataType::List(f), w) => *w == text_list() && matches!(f.data_type(), DataType::Utf8 | DataType::Null),
            _ => false,
        };
        if fits { Ok(wanted.clone()) } else { self.wrong(std::slice::from_ref(given)) }
    }

    fn wrong<T>(&self, types: &[DataType]) -> Result<T> {
        let types: Vec<String> = types.iter().map(crate::sql::types::display).collect();
        plan_err!("function {}({}) does not exist", self.name(), types.join(", "))
    }
}

impl ScalarUDFImpl for JsonFn {
    fn name(&self) -> &str {
        ALL.iter().find(|(k, ..)| *k == self.kind).map_or("jsonb", |(_, name, _)| name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let json = &jsonb::TYPE;
        Ok(match (self.kind, types) {
            (Kind::Get | Kind::GetText | Kind::Delete, [j, key]) => {
                let key = if key.is_integer() { DataType::Int64 } else { self.fit_text(key)? };
                vec![self.fit(j, json)?, key]
            }
            (Kind::Path | Kind::PathText | Kind::ExistsAny | Kind::ExistsAll, [j, path]) => {
                vec![self.fit(j, json)?, self.fit(path, &text_list())?]
            }
            (Kind::Extract | Kind::ExtractText, [j, path @ ..]) => {
                let mut out = vec![self.fit(j, json)?];
                for p in path {
                    out.push(self.fit_text(p)?);
                }
                out
            }
            (Kind::Exists, [j, key]) => vec![self.fit(j, json)?, self.fit_text(key)?],
            (Kind::Contains | Kind::Concat, [a, b]) => vec![self.fit(a, json)?, self.fit(b, json)?],
            (Kind::Length | Kind::TypeOf | Kind::Elements | Kind::ElementsText | Kind::Keys, [j]) => {
                vec![self.fit(j, json)?]
            }
            (Kind::BuildObject, all) if all.len() % 2 == 0 => {
                let mut out = all.to_vec();
                for (i, t) in out.iter_mut().enumerate() {
                    match i % 2 {
                        0 if t.is_integer() => *t = DataType::Utf8,
                        0 => *t = self.fit_text(t)?,
                        _ => to_json::check(t)?,
                    }
                }
                out
            }
            (Kind::BuildObject, _) => return plan_err!("{} takes keys and values in turn", self.name()),
            (Kind::BuildArray, all) => {
                all.iter().try_for_each(to_json::check)?;
                all.to_vec()
            }
            (Kind::ToJson, [t]) => {
                to_json::check(t)?;
                vec![t.clone()]
            }
            (Kind::OfList, [DataType::List(f)]) if *f.data_type() == jsonb::TYPE => types.to_vec(),
            _ => return self.wrong(types),
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let list = |t: DataType| DataType::List(Arc::new(Field::new_list_field(t, true)));
        // Checked here too: types are asked for before anything is coerced.
        self.coerce_types(types)?;
        Ok(match self.kind {
            Kind::GetText | Kind::PathText | Kind::ExtractText | Kind::TypeOf => DataType::Utf8,
            Kind::Contains | Kind::Exists | Kind::ExistsAny | Kind::ExistsAll => DataType::Boolean,
            Kind::Length => DataType::Int32,
            Kind::Elements => list(jsonb::TYPE),
            Kind::ElementsText | Kind::Keys => list(DataType::Utf8),
            _ => jsonb::TYPE,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|a| a.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let out = functions::evaluate(self.kind, &arrays, rows)?;
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?));
        }
        Ok(ColumnarValue::Array(out))
    }
}

impl JsonFn {
    fn fit_text(&self, given: &DataType) -> Result<DataType> {
        match given {
            DataType::Utf8 | DataType::Null => Ok(DataType::Utf8),
            other => self.wrong(std::slice::from_ref(other)),
        }
    }
}

/// An array of JSON values, read by row.
struct Values(LargeBinaryArray);

impl Values {
    fn new(array: &ArrayRef) -> Result<Self> {
        let array = if *array.data_type() == jsonb::TYPE { Arc::clone(array) } else { cast(array, &jsonb::TYPE)? };
        Ok(Self(array.as_binary::<i64>().clone()))
    }

    fn get(&self, row: usize) -> Result<Option<&str>> {
        if self.0.is_null(row) {
            return Ok(None);
        }
        match std::str::from_utf8(self.0.value(row)) {
            Ok(text) => Ok(Some(text)),
            Err(_) => exec_err!("these bytes are no jsonb"),
        }
    }
}

/// An array of texts.
fn texts(array: &ArrayRef) -> Result<StringArray> {
    let array = if *array.data_type() == DataType::Utf8 { Arc::clone(array) } else { cast(array, &DataType::Utf8)? };
    Ok(array.as_string::<i32>().clone())
}
