//! Flight SQL end to end: a server in this process on a free port, and the client library.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo,
    SqlInfo,
};
use arrow_flight::{Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use spate_client::protocol::{Answer, Client, IngestMode, Kind};
use spate_server::flight::Limits;
use spate_server::serve::SUBSCRIBE_RETENTION;
use spate_server::{Engine, EngineConfig, Server, ServerConfig};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// A server on a free port.
pub async fn start(limits: Limits) -> Server {
    let config = EngineConfig {
        threads: 2,
        epoch_interval: Duration::from_millis(10),
        subscribe_retention: SUBSCRIBE_RETENTION,
        ..EngineConfig::default()
    };
    let free = "127.0.0.1:0".to_owned();
    let config_of_server = ServerConfig { listen: free.clone(), http: free, limits };
    Server::start(Engine::open(config).unwrap(), config_of_server).await.unwrap()
}

/// A test on a server: a runtime with room for deep plans.
pub fn on_server<F: Future<Output = ()>>(limits: Limits, test: impl FnOnce(Client, String) -> F) {
    spate_server::threads::runtime().unwrap().block_on(async {
        let server = start(limits).await;
        let url = server.flight_url();
        let client = Client::connect(&url).await.unwrap();
        tokio::time::timeout(Duration::from_secs(120), test(client, url)).await.expect("in time");
        server.stop().await;
    });
}

pub async fn table(client: &Client, sql: &str) -> String {
    let batches = client.query(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// The stock client of arrow-flight.
async fn stock(url: &str) -> FlightSqlServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(url.replace("grpc://", "http://")).unwrap();
    FlightSqlServiceClient::new(endpoint.connect().await.unwrap())
}

async fn fetch(client: &mut FlightSqlServiceClient<Channel>, info: FlightInfo) -> Vec<RecordBatch> {
    let told = info.clone().try_decode_schema().unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let batches: Vec<RecordBatch> = client.do_get(ticket).await.unwrap().try_collect().await.unwrap();
    // What was told of the rows is what they are.
    for b in &batches {
        assert_eq!(b.schema().as_ref(), &told);
    }
    batches
}

fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    text.lines().map(|l| l.replace(' ', "")).filter(|l| l.starts_with('|')).skip(1).collect()
}

#[test]
fn statements_of_every_kind() {
    on_server(Limits::default(), async |client, _| {
        assert_eq!(client.execute("CREATE TABLE t (id int PRIMARY KEY, name text)").await.unwrap(), 0);
        assert_eq!(client.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await.unwrap(), 3);
        assert_eq!(client.execute("UPDATE t SET name = 'z' WHERE id > 1").await.unwrap(), 2);
        assert_eq!(client.execute("DELETE FROM t WHERE id = 3 RETURNING id").await.unwrap(), 1);
        client.execute("CREATE MATERIALIZED VIEW v AS SELECT name, count(*) AS n FROM t GROUP BY name").await.unwrap();
        assert_eq!(
            texts(&client.query("SELECT * FROM v ORDER BY name").await.unwrap().collect().await.unwrap()),
            ["|a|1|", "|z|1|"]
        );
        let returned = client.query("INSERT INTO t VALUES (9, 'n') RETURNING id + 1 AS next").await.unwrap();
        assert_eq!(texts(&returned.collect().await.unwrap()), ["|10|"]);
        // A query without rows has columns.
        let none = client.query("SELECT id, name FROM t WHERE id > 100").await.unwrap();
        assert_eq!(none.schema().fields().len(), 2);
        assert_eq!(none.collect().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
        assert!(matches!(client.run("FLUSH").await.unwrap(), Answer::Done(tag) if tag == "FLUSH"));
        assert!(table(&client, "EXPLAIN SELECT count(*) FROM t").await.contains("Aggregate"));
        assert!(table(&client, "SHOW TABLES").await.contains('t'));
        assert_eq!(client.verify_views().await.unwrap(), 1);
    });
}

#[test]
fn errors_have_kinds_places_and_hints() {
    on_server(Limits::default(), async |client, url| {
        client.execute("CREATE TABLE bid (id int PRIMARY KEY)").await.unwrap();
        client.execute("INSERT INTO bid VALUES (1)").await.unwrap();
        let failed = async |sql: &str| client.run(sql).await.err().unwrap();
        let e = failed("SELECT *\nFROM bidz").await;
        assert_eq!((e.kind(), e.position()), (Kind::NotFound, Some((2, 6))), "{e}");
        assert!(e.hint().unwrap().contains("did you mean bid"), "{e}");
        assert_eq!(failed("SELEC 1").await.kind(), Kind::Syntax);
        assert_eq!(failed("CREATE TABLE bid (x int)").await.kind(), Kind::AlreadyExists);
        assert_eq!(failed("INSERT INTO bid VALUES (1)").await.kind(), Kind::Constraint);
        assert_eq!(failed("SELECT $1").await.kind(), Kind::InvalidArgument);
        let e = client.query("SELECT 1 / (id - 1) FROM bid").await.unwrap().collect().await.unwrap_err();
        assert_eq!(e.kind(), Kind::Evaluation, "{e}");
        assert_eq!(client.query("FLUSH").await.err().unwrap().kind(), Kind::InvalidArgument);

        // The codes and texts that any client sees.
        let mut stock = stock(&url).await;
        let status = match stock.execute("SELECT *\nFROM bidz".into(), None).await.unwrap_err() {
            arrow_flight::error::FlightError::Tonic(status) => *status,
            other => panic!("{other}"),
        };
        assert_eq!(status.code(), Code::NotFound);
        assert!(status.message().contains("(line 2, column 6)\nhint: did you mean"), "{}", status.message());
        let refused = stock.begin_transaction().await.unwrap_err().to_string();
        assert!(refused.contains("transactions are not supported"), "{refused}");
        let e = Client::connect("grpc://127.0.0.1:1").await.unwrap_err();
        assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    });
}

#[test]
fn tickets_are_good_once_and_results_are_bounded() {
    on_server(Limits { waiting_results: 2, ..Limits::default() }, async |_, url| {
        let mut stock = stock(&url).await;
        let info = stock.execute("SELECT 1 AS a".into(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        assert_eq!(fetch(&mut stock, info).await[0].num_rows(), 1);
        let again = stock.do_get(ticket).await.err().unwrap().to_string();
        assert!(again.contains("no result under this ticket"), "{again}");
        stock.execute("SELECT 1".into(), None).await.unwrap();
        stock.execute("SELECT 2".into(), None).await.unwrap();
        let e = stock.execute("SELECT 3".into(), None).await.unwrap_err().to_string();
        assert!(e.contains("2 results wait to be fetched"), "{e}");
    });
}

#[test]
fn parameters_are_typed() {
    on_server(Limits::default(), async |client, _| {
        client
            .execute("CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(10,2), at timestamp)")
            .await
            .unwrap();
        let insert = client.prepare("INSERT INTO t VALUES ($1, $2, $3, $4)").await.unwrap();
        let kinds: Vec<DataType> = insert.parameters().fields().iter().map(|f| f.data_type().clone()).collect();
        assert_eq!(kinds[..3], [DataType::Int32, DataType::Utf8, DataType::Decimal128(10, 2)]);
        assert!(insert.columns().is_none());
        let values = RecordBatch::try_from_iter([
            ("a", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
            ("b", Arc::new(StringArray::from(vec![Some("it's"), None]))),
            ("c", Arc::new(StringArray::from(vec!["12.345", "1"]))),
            ("d", Arc::new(StringArray::from(vec!["2024-01-02 03:04:05", "2024-01-02"]))),
        ])
        .unwrap();
        assert_eq!(insert.execute(&values).await.unwrap(), 2);
        insert.close().await.unwrap();

        let find = client.prepare("SELECT id, name, price FROM t WHERE id = $1 AND name LIKE $2").await.unwrap();
        assert_eq!(find.parameters().field(0).data_type(), &DataType::Int32);
        assert_eq!(find.parameters().field(1).data_type(), &DataType::Utf8);
        assert_eq!(find.columns().unwrap().field(2).data_type(), &DataType::Decimal128(10, 2));
        let values = |id: i32, like: &str| {
            RecordBatch::try_from_iter([
                ("1", Arc::new(Int32Array::from(vec![id])) as ArrayRef),
                ("2", Arc::new(StringArray::from(vec![like]))),
            ])
            .unwrap()
        };
        let rows = async |id, like| texts(&find.query(&values(id, like)).await.unwrap().collect().await.unwrap());
        assert_eq!(rows(1, "it%").await, ["|1|it's|12.35|"]);
        assert!(rows(1, "x").await.is_empty() && rows(2, "%").await.is_empty());

        // What nothing tells is null: any value will do.
        let any = client.prepare("SELECT $1 AS a, $2::bigint + 1 AS b").await.unwrap();
        assert_eq!(any.parameters().field(0).data_type(), &DataType::Null);
        assert_eq!(any.parameters().field(1).data_type(), &DataType::Int64);
        assert_eq!(texts(&any.query(&values(7, "41")).await.unwrap().collect().await.unwrap()), ["|7|42|"]);
        let update = client.prepare("UPDATE t SET name = $2 WHERE id = $1 RETURNING id, name").await.unwrap();
        assert_eq!(update.columns().unwrap().fields().len(), 2);
        assert_eq!(texts(&update.query(&values(2, "two")).await.unwrap().collect().await.unwrap()), ["|2|two|"]);

        let e = find.query(&values(1, "x").project(&[0]).unwrap()).await.err().unwrap();
        assert!(e.message().contains("1 values were given for 2 parameters"), "{e}");
        let e = client.prepare("SELECT nope FROM t").await.err().unwrap();
        assert_eq!((e.kind(), e.position()), (Kind::NotFound, Some((1, 8))), "{e}");
    });
}

#[test]
fn metadata_tells_what_there_is() {
    on_server(Limits::default(), async |client, url| {
        client.execute("CREATE SCHEMA shop").await.unwrap();
        client.execute("CREATE TABLE shop.item (b int, a text, PRIMARY KEY (a, b))").await.unwrap();
        client.execute("CREATE VIEW cheap AS SELECT * FROM shop.item WHERE b < 3").await.unwrap();
        let mut stock = stock(&url).await;
        let info = stock.get_catalogs().await.unwrap();
        assert_eq!(texts(&fetch(&mut stock, info).await), ["|spate|"]);
        let info = stock.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
        assert!(texts(&fetch(&mut stock, info).await).contains(&"|spate|shop|".to_owned()));
        let pattern = CommandGetTables {
            table_name_filter_pattern: Some("it%".into()),
            include_schema: true,
            ..CommandGetTables::default()
        };
        let info = stock.get_tables(pattern).await.unwrap();
        let tables = fetch(&mut stock, info).await;
        assert_eq!((tables[0].num_rows(), tables[0].num_columns()), (1, 5));
        let views = CommandGetTables { table_types: vec!["VIEW".into()], ..CommandGetTables::default() };
        let info = stock.get_tables(views).await.unwrap();
        assert_eq!(texts(&fetch(&mut stock, info).await), ["|spate|public|cheap|VIEW|"]);
        let info = stock.get_table_types().await.unwrap();
        assert_eq!(fetch(&mut stock, info).await[0].num_rows(), 5);
        let keys = CommandGetPrimaryKeys { catalog: None, db_schema: Some("shop".into()), table: "item".into() };
        let info = stock.get_primary_keys(keys).await.unwrap();
        assert_eq!(texts(&fetch(&mut stock, info).await), ["|spate|shop|item|a||1|", "|spate|shop|item|b||2|"]);
        let keys = CommandGetExportedKeys { catalog: None, db_schema: None, table: "item".into() };
        let info = stock.get_exported_keys(keys).await.unwrap();
        assert_eq!(info.clone().try_decode_schema().unwrap().fields().len(), 13);
        assert!(fetch(&mut stock, info).await.iter().all(|b| b.num_rows() == 0));
        let info =
            stock.get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerCancel]).await.unwrap();
        assert_eq!(fetch(&mut stock, info).await[0].num_rows(), 2);
        let info = stock.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(4) }).await.unwrap();
        assert!(texts(&fetch(&mut stock, info).await)[0].starts_with("|integer|4|"));
    });
}

fn numbers(n: i64) -> RecordBatch {
    let ids: Vec<i64> = (0..n).collect();
    let names: Vec<String> = ids.iter().map(|i| format!("row {i}")).collect();
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(ids)) as ArrayRef),
        ("name", Arc::new(StringArray::from(names))),
    ])
    .unwrap()
}

#[test]
fn ingest_is_all_or_nothing() {
    on_server(Limits { ingest_bytes: 64 << 20, ..Limits::default() }, async |client, _| {
        const ROWS: i64 = 100_000;
        let all = numbers(ROWS);
        let schema = all.schema();
        let pieces = |n: i64| {
            let all = all.clone();
            futures::stream::iter(
                (0..n).step_by(8192).map(move |at| Ok(all.slice(at as usize, (n - at).min(8192) as usize))),
            )
        };
        let ingest = async |mode, n| client.ingest("big", mode, schema.clone(), pieces(n)).await;
        assert_eq!(ingest(IngestMode::Append, 10).await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(ingest(IngestMode::Create, ROWS).await.unwrap(), ROWS as u64);
        assert_eq!(ingest(IngestMode::Create, 1).await.unwrap_err().kind(), Kind::AlreadyExists);
        let count =
            async || texts(&client.query("SELECT count(*), sum(id) FROM big").await.unwrap().collect().await.unwrap());
        assert_eq!(count().await, [format!("|100000|{}|", ROWS * (ROWS - 1) / 2)]);
        assert_eq!(ingest(IngestMode::Append, 5).await.unwrap(), 5);
        assert_eq!(count().await, [format!("|100005|{}|", ROWS * (ROWS - 1) / 2 + 10)]);
        assert_eq!(ingest(IngestMode::Replace, 3).await.unwrap(), 3);
        assert_eq!(count().await, ["|3|3|"]);

        // Columns go by name, what is missing has its default, and a view sees the rows.
        client
            .execute("CREATE TABLE named (k text DEFAULT 'x', name text NOT NULL, id bigint PRIMARY KEY)")
            .await
            .unwrap();
        client.execute("CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS c FROM named GROUP BY k").await.unwrap();
        let ingest = |batch: RecordBatch| {
            client.ingest("named", IngestMode::Append, batch.schema(), futures::stream::iter([Ok(batch)]))
        };
        assert_eq!(ingest(numbers(4)).await.unwrap(), 4);
        assert_eq!(texts(&client.query("SELECT * FROM n").await.unwrap().collect().await.unwrap()), ["|x|4|"]);
        // A row that is refused takes all others with it.
        let field = |n: &str, t| Field::new(n, t, true);
        let schema = Arc::new(Schema::new(vec![field("id", DataType::Int64), field("name", DataType::Utf8)]));
        let bad = RecordBatch::try_new(
            schema,
            vec![Arc::new(Int64Array::from(vec![10, 11])), Arc::new(StringArray::from(vec![Some("a"), None]))],
        )
        .unwrap();
        assert_eq!(ingest(bad).await.unwrap_err().kind(), Kind::Constraint);
        let e = ingest(numbers(1).project(&[0]).unwrap()).await.unwrap_err();
        assert_eq!(e.kind(), Kind::Constraint, "{e}");
        assert_eq!(texts(&client.query("SELECT * FROM n").await.unwrap().collect().await.unwrap()), ["|x|4|"]);
        assert_eq!(client.verify_views().await.unwrap(), 1);
    });
}

#[test]
fn a_stream_over_the_limit_is_refused() {
    on_server(Limits { ingest_bytes: 1 << 20, ..Limits::default() }, async |client, _| {
        let all = numbers(100_000);
        let rows = futures::stream::iter([Ok(all.clone())]);
        let e = client.ingest("big", IngestMode::Create, all.schema(), rows).await.unwrap_err();
        assert_eq!(e.kind(), Kind::Limit, "{e}");
        assert_eq!(client.run("SELECT * FROM big").await.err().unwrap().kind(), Kind::NotFound);
    });
}

const ENDLESS: &str =
    "SELECT a.value FROM generate_series(1, 100000) AS a(value) CROSS JOIN generate_series(1, 100000) AS b(value)";

#[test]
fn a_running_query_is_cancelled() {
    on_server(Limits::default(), async |client, url| {
        let mut stock = stock(&url).await;
        let info = stock.execute(ENDLESS.into(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let mut rows = stock.do_get(ticket).await.unwrap();
        assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
        let cancel = async |stock: &mut FlightSqlServiceClient<Channel>| {
            let body = CancelFlightInfoRequest::new(info.clone()).encode_to_vec();
            let mut answer = stock.do_action(Action::new("CancelFlightInfo", body)).await.unwrap();
            CancelFlightInfoResult::decode(answer.message().await.unwrap().unwrap().body).unwrap()
        };
        assert_eq!(cancel(&mut stock).await.status(), CancelStatus::Cancelled);
        // Rows that were on their way may come before the error.
        let e = loop {
            match rows.next().await.expect("an error") {
                Ok(_) => {}
                Err(e) => break e.to_string(),
            }
        };
        assert!(e.contains("cancelled on user's request"), "{e}");
        assert_eq!(cancel(&mut stock).await.status(), CancelStatus::NotCancellable);
        // Whoever lets go of the rows has cancelled them, and the next statement runs.
        let mut rows = client.query(ENDLESS).await.unwrap();
        assert!(rows.next().await.unwrap().is_ok());
        drop(rows);
        assert_eq!(texts(&client.query("SELECT 1").await.unwrap().collect().await.unwrap()), ["|1|"]);
    });
}

#[test]
fn sessions_have_their_own_settings() {
    on_server(Limits { sessions: 2, ..Limits::default() }, async |client, url| {
        client.execute("SET read_timeout = '7 s'").await.unwrap();
        let other = Client::connect(&url).await.unwrap();
        let shown = async |c: &Client| texts(&c.query("SHOW read_timeout").await.unwrap().collect().await.unwrap());
        assert_eq!(shown(&client).await, ["|7000ms|"]);
        assert_eq!(shown(&client.clone()).await, ["|7000ms|"]);
        assert_eq!(shown(&other).await, ["|30000ms|"]);
        let e = Client::connect(&url).await.err().unwrap();
        assert!(e.message().contains("sessions"), "{e}");
        other.close().await.unwrap();
    });
}
