//! What the server is and can do, for `GetSqlInfo`.

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction};
use spate_engine::types::{Result, SpateError};

/// Notes texts.
fn text(builder: &mut SqlInfoDataBuilder, entries: &[(SqlInfo, &str)]) {
    for (name, value) in entries {
        builder.append(*name, *value);
    }
}

/// All that is told.
pub fn data() -> Result<SqlInfoData> {
    let mut b = SqlInfoDataBuilder::new();
    text(
        &mut b,
        &[
            (SqlInfo::FlightSqlServerName, "Spate"),
            (SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION")),
            (SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION),
            (SqlInfo::SqlIdentifierQuoteChar, "\""),
            (SqlInfo::SqlSchemaTerm, "schema"),
            (SqlInfo::SqlCatalogTerm, "catalog"),
            (SqlInfo::SqlSearchStringEscape, "\\"),
            (SqlInfo::SqlExtraNameCharacters, ""),
        ],
    );
    for (name, value) in [
        (SqlInfo::FlightSqlServerReadOnly, false),
        (SqlInfo::FlightSqlServerSql, true),
        (SqlInfo::FlightSqlServerSubstrait, false),
        (SqlInfo::FlightSqlServerCancel, true),
        (SqlInfo::FlightSqlServerBulkIngestion, true),
        (SqlInfo::FlightSqlServerIngestTransactionsSupported, false),
        (SqlInfo::SqlDdlCatalog, false),
        (SqlInfo::SqlDdlSchema, true),
        (SqlInfo::SqlDdlTable, true),
        (SqlInfo::SqlAllTablesAreSelectable, true),
        (SqlInfo::SqlTransactionsSupported, false),
        (SqlInfo::SqlBatchUpdatesSupported, true),
        (SqlInfo::SqlSavepointsSupported, false),
        (SqlInfo::SqlStoredProceduresSupported, false),
        (SqlInfo::SqlCorrelatedSubqueriesSupported, true),
    ] {
        b.append(name, value);
    }
    b.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    b.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    b.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    b.append(SqlInfo::SqlIdentifierCase, i64::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32));
    b.append(
        SqlInfo::SqlQuotedIdentifierCase,
        i64::from(SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32),
    );
    b.append(SqlInfo::SqlNullOrdering, i64::from(SqlNullOrdering::SqlNullsSortedHigh as i32));
    let words: &[&str] =
        &["ASOF", "EMIT", "FLUSH", "MATERIALIZED", "QUALIFY", "SINK", "SOURCE", "SUBSCRIBE", "WATERMARK"];
    b.append(SqlInfo::SqlKeywords, words);
    b.build().map_err(|e| SpateError::internal(e.to_string()))
}
