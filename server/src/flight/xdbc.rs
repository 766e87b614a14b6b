//! Types, as ODBC and JDBC describe them, for `GetXdbcTypeInfo`.

use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};
use spate_engine::types::{Result, SpateError};

/// Name, type, digits or characters, whether literals stand in quotes, radix of numbers.
type Row = (&'static str, XdbcDataType, Option<i32>, bool, Option<i32>);

const TYPES: &[Row] = &[
    ("boolean", XdbcDataType::XdbcBit, Some(1), false, None),
    ("smallint", XdbcDataType::XdbcSmallint, Some(16), false, Some(2)),
    ("integer", XdbcDataType::XdbcInteger, Some(32), false, Some(2)),
    ("bigint", XdbcDataType::XdbcBigint, Some(64), false, Some(2)),
    ("real", XdbcDataType::XdbcReal, Some(24), false, Some(2)),
    ("double precision", XdbcDataType::XdbcDouble, Some(53), false, Some(2)),
    ("numeric", XdbcDataType::XdbcNumeric, Some(38), false, Some(10)),
    ("text", XdbcDataType::XdbcVarchar, None, true, None),
    ("bytea", XdbcDataType::XdbcVarbinary, None, true, None),
    ("uuid", XdbcDataType::XdbcChar, Some(36), true, None),
    ("jsonb", XdbcDataType::XdbcLongvarchar, None, true, None),
    ("date", XdbcDataType::XdbcDate, Some(10), true, None),
    ("time", XdbcDataType::XdbcTime, Some(15), true, None),
    ("timestamp", XdbcDataType::XdbcTimestamp, Some(26), true, None),
    ("timestamp with time zone", XdbcDataType::XdbcTimestamp, Some(32), true, None),
    ("interval", XdbcDataType::XdbcInterval, None, true, None),
];

/// All types.
pub fn data() -> Result<XdbcTypeInfoData> {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for (name, kind, size, quoted, radix) in TYPES {
        let quote = quoted.then(|| "'".to_owned());
        let (sql, subcode) = match kind {
            XdbcDataType::XdbcDate => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeYear)),
            XdbcDataType::XdbcTime => (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTime)),
            XdbcDataType::XdbcTimestamp => {
                (XdbcDataType::XdbcDatetime, Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp))
            }
            other => (*other, None),
        };
        let decimal = *kind == XdbcDataType::XdbcNumeric;
        builder.append(XdbcTypeInfo {
            type_name: (*name).to_owned(),
            data_type: *kind,
            column_size: *size,
            literal_prefix: quote.clone(),
            literal_suffix: quote,
            create_params: decimal.then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: *quoted,
            searchable: Searchable::Full,
            unsigned_attribute: radix.map(|_| false),
            fixed_prec_scale: false,
            auto_increment: radix.map(|_| false),
            local_type_name: Some((*name).to_owned()),
            minimum_scale: decimal.then_some(0),
            maximum_scale: decimal.then_some(38),
            sql_data_type: sql,
            datetime_subcode: subcode,
            num_prec_radix: *radix,
            interval_precision: None,
        });
    }
    builder.build().map_err(|e| SpateError::internal(e.to_string()))
}
