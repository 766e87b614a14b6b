//! The rules of the catalog: names, dependencies, what SHOW prints.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use spate_engine::types::error::ErrorKind;

use super::*;
use crate::sql::statement::{Drop, Statement};
use crate::sql::{Name, Options, parse_one};

fn path() -> Vec<String> {
    vec!["public".into()]
}

fn put(c: &mut Catalog, name: &Name, kind: ObjectKind, on: &[u64]) -> u64 {
    let (schema, name) = c.new_name(&path(), name).unwrap();
    let id = c.allocate_id();
    let relation = kind.relation_kind().map(|kind| Relation {
        id,
        schema_name: schema.clone(),
        name: name.clone(),
        kind,
        schema: Arc::new(Schema::new(vec![Field::new("a", arrow::datatypes::DataType::Int32, true)])),
        key: None,
        append_only: false,
        watermark: None,
        bounded: false,
        query: matches!(kind, RelationKind::View).then(|| "SELECT 1 AS a".into()),
    });
    let object = Object {
        id,
        schema,
        name,
        kind,
        relation,
        sql: "CREATE …".into(),
        depends_on: on.to_vec(),
        options: Options::new(),
        format: None,
        table: None,
        function: None,
        index: None,
        comments: Default::default(),
    };
    c.add(object).unwrap().id
}

/// t <- v <- m <- s, and u.
fn sample() -> Catalog {
    let mut c = Catalog::new();
    let t = put(&mut c, &Name::bare("t"), ObjectKind::Table, &[]);
    put(&mut c, &Name::bare("u"), ObjectKind::Table, &[]);
    let v = put(&mut c, &Name::bare("v"), ObjectKind::View, &[t]);
    let m = put(&mut c, &Name::bare("m"), ObjectKind::MaterializedView, &[v, t]);
    put(&mut c, &Name::bare("s"), ObjectKind::Sink, &[m]);
    c
}

fn drop_sql(sql: &str) -> Drop {
    match parse_one(sql).unwrap().statement {
        Statement::Drop(d) => d,
        other => panic!("{other:?}"),
    }
}

fn dropped(c: &mut Catalog, sql: &str) -> Result<Vec<String>, (ErrorKind, String)> {
    match c.apply_drop(&path(), &drop_sql(sql)) {
        Ok(gone) => Ok(gone.iter().map(|o| o.display_name()).collect()),
        Err(e) => Err((e.kind(), format!("{e} / {}", e.hint().unwrap_or_default()))),
    }
}

#[test]
fn drops_without_cascade_are_refused_while_others_depend() {
    let mut c = sample();
    let (kind, text) = dropped(&mut c, "DROP TABLE t").unwrap_err();
    assert_eq!(kind, ErrorKind::DependencyExists);
    assert!(text.contains("table t") && text.contains("view v, materialized view m, sink s depend"), "{text}");
    assert!(text.contains("CASCADE"));
    assert_eq!(dropped(&mut c, "DROP TABLE u").unwrap(), ["u"]);
    assert_eq!(dropped(&mut c, "DROP SINK s").unwrap(), ["s"]);
    assert_eq!(dropped(&mut c, "DROP MATERIALIZED VIEW m").unwrap(), ["m"]);
}

#[test]
fn cascade_takes_dependents_first() {
    let mut c = sample();
    assert_eq!(dropped(&mut c, "DROP VIEW v CASCADE").unwrap(), ["s", "m", "v"]);
    assert_eq!(c.list(None, None).iter().map(|o| o.display_name()).collect::<Vec<_>>(), ["t", "u"]);
    // Ids are never used again.
    let id = put(&mut c, &Name::bare("v"), ObjectKind::View, &[]);
    assert_eq!(id, 6);
}

#[test]
fn drops_check_kind_and_existence() {
    let mut c = sample();
    let (kind, text) = dropped(&mut c, "DROP TABLE v").unwrap_err();
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert_eq!(text, "\"v\" is not a table / it is a view");
    let (kind, text) = dropped(&mut c, "DROP TABLE nothing").unwrap_err();
    assert_eq!((kind, text.as_str()), (ErrorKind::NotFound, "table \"nothing\" does not exist / "));
    assert_eq!(dropped(&mut c, "DROP TABLE IF EXISTS nothing, u").unwrap(), ["u"]);
}

#[test]
fn a_failed_drop_of_several_changes_nothing() {
    let mut c = sample();
    c.create_schema("x", false).unwrap();
    assert!(dropped(&mut c, "DROP SCHEMA x, y").is_err());
    assert!(c.schemas().any(|s| s == "x"));
    assert!(dropped(&mut c, "DROP TABLE u, t").is_err());
    assert!(c.lookup("public", "u").is_some());
}

#[test]
fn schemas() {
    let mut c = sample();
    assert!(c.create_schema("x", false).unwrap());
    assert!(!c.create_schema("x", true).unwrap());
    assert_eq!(c.create_schema("x", false).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let t = put(&mut c, &Name::qualified("x", "t"), ObjectKind::Table, &[]);
    put(&mut c, &Name::bare("w"), ObjectKind::View, &[t]);
    assert_eq!(c.drop_schema("x", false).unwrap_err().kind(), ErrorKind::DependencyExists);
    let gone = c.drop_schema("x", true).unwrap();
    assert_eq!(gone.iter().map(|o| o.display_name()).collect::<Vec<_>>(), ["w", "x.t"]);
    for name in ["public", "information_schema", "spate"] {
        assert_eq!(c.drop_schema(name, true).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(c.new_name(&path(), &Name::qualified("spate", "t")).unwrap_err().kind(), ErrorKind::Unsupported);
    let e = c.new_name(&path(), &Name::qualified("pubic", "t")).unwrap_err();
    assert_eq!((e.kind(), e.hint()), (ErrorKind::NotFound, Some("did you mean \"public\"?")));
}

#[test]
fn names_resolve_along_the_path_with_hints() {
    let mut c = sample();
    c.create_schema("x", false).unwrap();
    put(&mut c, &Name::bare("orders"), ObjectKind::Table, &[]);
    put(&mut c, &Name::qualified("x", "orders"), ObjectKind::Table, &[]);
    put(&mut c, &Name::qualified("x", "bids"), ObjectKind::Table, &[]);
    let both = ["x".to_string(), "public".to_string()];
    assert_eq!(c.resolve(&both, &Name::bare("orders")).unwrap().display_name(), "x.orders");
    assert_eq!(c.resolve(&path(), &Name::bare("orders")).unwrap().display_name(), "orders");
    let hint = |n: Name| c.resolve(&path(), &n).unwrap_err().hint().map(str::to_string);
    assert_eq!(hint(Name::bare("order")).unwrap(), "did you mean orders?");
    assert_eq!(hint(Name::bare("bids")).unwrap(), "did you mean x.bids?");
    assert_eq!(hint(Name::bare("zebra")), None);
    assert_eq!(c.relation(&path(), &Name::bare("s")).unwrap_err().message(), "\"s\" is a sink, which cannot be read");
    let e = c.new_name(&path(), &Name::bare("orders")).unwrap_err();
    assert_eq!((e.kind(), e.message()), (ErrorKind::AlreadyExists, "relation \"orders\" already exists"));
    assert_eq!(c.dependents(1), [3, 4]);
}

#[test]
fn add_refuses_what_cannot_be() {
    let mut c = sample();
    let mut o = c.get(2).unwrap().as_ref().clone();
    o.name = "other".into();
    assert_eq!(c.add(o.clone()).unwrap_err().kind(), ErrorKind::Internal);
    o.id = 50;
    o.depends_on = vec![99];
    assert_eq!(c.add(o.clone()).unwrap_err().kind(), ErrorKind::Internal);
    o.depends_on = vec![];
    c.add(o).unwrap();
    assert_eq!(c.allocate_id(), 51);
}

#[test]
fn information() {
    let mut c = Catalog::new();
    let sql = "CREATE TABLE t (id int PRIMARY KEY, \"Note\" text DEFAULT 'x', at timestamptz NOT NULL)";
    let Statement::CreateTable(create) = parse_one(sql).unwrap().statement else { panic!() };
    let id = c.allocate_id();
    let fields = create.columns.iter().map(|f| Field::new(&f.name, f.data_type.clone(), f.nullable));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    c.add(Object {
        id,
        schema: "public".into(),
        name: "t".into(),
        kind: ObjectKind::Table,
        relation: Some(Relation {
            id,
            schema_name: "public".into(),
            name: "t".into(),
            kind: RelationKind::Table,
            schema,
            key: Some(create.primary_key.clone()),
            append_only: false,
            watermark: None,
            bounded: false,
            query: None,
        }),
        sql: sql.into(),
        depends_on: vec![],
        options: Options::new(),
        format: None,
        table: Some(TableDetails::from_statement(&create)),
        function: None,
        index: None,
        comments: Default::default(),
    })
    .unwrap();
    put(&mut c, &Name::bare("v"), ObjectKind::View, &[id]);
    let described = info::describe(c.get(id).unwrap()).unwrap();
    assert_eq!(
        pretty_format_batches(&[described]).unwrap().to_string(),
        "\
+------+--------------------------+----------+-----+---------+
| name | type                     | nullable | key | default |
+------+--------------------------+----------+-----+---------+
| id   | integer                  | NO       | PRI |         |
| Note | text                     | YES      |     | 'x'     |
| at   | timestamp with time zone | NO       |     |         |
+------+--------------------------+----------+-----+---------+"
    );
    let rows = |name: &str| c.system_table(&Name::qualified("information_schema", name)).unwrap().unwrap();
    assert_eq!(rows("schemata").num_rows(), 3);
    assert_eq!(rows("tables").num_rows(), 2);
    assert_eq!(rows("columns").num_rows(), 4);
    assert_eq!(rows("columns").schema().field(4).name(), "ordinal_position");
    assert_eq!(rows("views").num_rows(), 1);
    assert!(c.system_table(&Name::bare("tables")).is_none());
    use crate::sql::statement::ShowKind;
    assert_eq!(info::show_objects(&c, ShowKind::Tables, None).unwrap().num_rows(), 1);
    assert!(info::show_objects(&c, ShowKind::Tables, Some("nope")).is_err());
    assert_eq!(info::show_create(c.get(id).unwrap()).unwrap().num_rows(), 1);
}
