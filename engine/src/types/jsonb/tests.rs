//! Tests of canonical JSON.

use super::*;

#[track_caller]
fn check(text: &str, expect: &str) {
    match canonical(text) {
        Ok(found) => {
            assert_eq!(found, expect, "{text}");
            assert_eq!(canonical(&found).as_deref(), Ok(expect), "the canonical form changes");
        }
        Err(e) => assert_eq!(format!("! {e}"), expect, "{text}"),
    }
}

#[test]
fn one_form() {
    check(" { \"b\" :1,\"a\":[ ],\"aa\":{ } } ", "{\"a\": [], \"b\": 1, \"aa\": {}}");
    check("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}");
    check("[1,\ttrue,null,\"x\"]", "[1, true, null, \"x\"]");
    check(r#""\u00e4\/\ud83d\ude00\n\u0007\"""#, "\"ä/😀\\n\\u0007\\\"\"");
    check("null", "null");
}

#[test]
fn one_form_of_numbers() {
    for (text, expect) in [
        ("-0", "0"),
        ("0.000", "0"),
        ("1.0", "1"),
        ("10", "10"),
        ("1e1", "10"),
        ("100e-1", "10"),
        ("-12.50", "-12.5"),
        ("0.05", "0.05"),
        ("5E-2", "0.05"),
        ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        ("1e500", "1e500"),
        ("10e499", "1e500"),
        ("1.5e-500", "15e-501"),
        ("0e999999999999", "0"),
        ("1e131073", "! a number is out of range"),
        ("1e99999999999999999999", "! a number is out of range"),
    ] {
        check(text, expect);
    }
}

#[test]
fn what_is_no_json() {
    for bad in [
        "",
        " ",
        "nul",
        "nulls",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":1,}",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\u0000\"",
        "\"\n\"",
        "1 1",
        "'a'",
        "NaN",
    ] {
        assert!(canonical(bad).is_err(), "{bad:?}");
    }
    check(&"[".repeat(200), "! values are nested more than 128 deep");
    assert!(canonical(&format!("{}{}", "[".repeat(120), "]".repeat(120))).is_ok());
}

#[test]
fn parts() {
    let json = canonical(r#"{"a":[1,{"x":"y,}"},"z\"]"],"b\"":null,"c":"t","d":{}}"#).unwrap_or_default();
    assert_eq!(entry(&json, "\"a\""), Some(r#"[1, {"x": "y,}"}, "z\"]"]"#));
    assert_eq!(entry(&json, "\"b\\\"\""), Some("null"));
    assert_eq!(entry(&json, "\"x\""), None);
    assert_eq!(entry("[1]", "\"x\""), None);
    let a = entry(&json, "\"a\"").unwrap_or_default();
    assert_eq!(elements(a).collect::<Vec<_>>(), ["1", r#"{"x": "y,}"}"#, r#""z\"]""#]);
    assert_eq!((element(a, 0), element(a, -1), element(a, 3)), (Some("1"), Some(r#""z\"]""#), None));
    assert_eq!((element(a, -3), element(a, -4), element(a, i64::MIN)), (Some("1"), None, None));
    assert_eq!(element("{\"0\": 1}", 0), None);
    assert_eq!(elements("[]").count(), 0);
    assert_eq!(members(&json).map(|(k, _)| k).collect::<Vec<_>>(), ["\"a\"", "\"c\"", "\"d\"", "\"b\\\"\""]);
    assert_eq!(text("\"z\\\"]\"").as_deref(), Some("z\"]"));
    assert_eq!(text("null"), None);
    assert_eq!(text("[1]").as_deref(), Some("[1]"));
    // What is not canonical does no harm.
    for bad in ["", "[", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "[\"\\", "]", "{]", "[1"] {
        let _ = (elements(bad).count(), members(bad).count(), text(bad), kind(bad), element(bad, -1), entry(bad, "a"));
    }
}

#[test]
fn containment() {
    let holds = |a: &str, b: &str| match (parse(a), parse(b)) {
        (Ok(a), Ok(b)) => a.contains(&b),
        other => panic!("{other:?}"),
    };
    assert!(holds(r#"{"a":1,"b":{"c":[1,2,{"d":3}]}}"#, r#"{"b":{"c":[2,{"d":3.0}]}}"#));
    assert!(holds("[1,2,[1,3]]", "[[1]]"));
    assert!(holds("[1,2,2]", "[2,2,2]"));
    assert!(holds("[\"foo\",\"bar\"]", "\"bar\""));
    assert!(holds("1", "1"));
    assert!(holds("{}", "{}"));
    assert!(!holds("\"bar\"", "[\"bar\"]"));
    assert!(!holds("[1,[2]]", "[2]"));
    assert!(!holds("[[1]]", "1"));
    assert!(!holds("{\"a\":[1]}", "{\"a\":1}"));
    assert!(!holds("{}", "[]"));
    assert!(!holds("{\"a\":1}", "{\"a\":1,\"b\":null}"));
}
