//! House rules that the compiler does not check: which crate may use which, a `//!` line in every
//! file, file length, no `unwrap`, wall clock or unfinished code outside the places for it, and
//! no links in the documents that lead nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest file, tests within it left out.
const MAX_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files of the project below `dir`, as paths from the root, in order. Hidden files are not, nor
/// what a build or an editor leaves; `.ci` is.
fn files(dir: &Path, out: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if (name.starts_with('.') && name != ".ci") || name == "target" || name == "Cargo.lock" {
            continue;
        }
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
        }
    }
}

fn all_files() -> Vec<String> {
    let mut out = Vec::new();
    files(&root(), &mut out);
    assert!(out.len() > 100, "found only {} files", out.len());
    out
}

fn text(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(path)).unwrap()).into_owned()
}

fn rust_files() -> Vec<(String, String)> {
    let found: Vec<_> = all_files().into_iter().filter(|f| f.ends_with(".rs")).collect();
    assert!(found.len() > 100, "found only {} Rust files", found.len());
    found.into_iter().map(|f| (f.clone(), text(&f))).collect()
}

/// Whether a whole file is tests (or helpers of tests).
fn is_test_file(path: &str) -> bool {
    let stem = Path::new(path).file_stem().unwrap().to_string_lossy().into_owned();
    // Criterion's benchmarks stop at the first thing that is not as they expect, as tests do.
    path.contains("/tests/")
        || path.starts_with("benches/benches/")
        || stem == "tests"
        || stem == "testing"
        || stem.ends_with("_tests")
}

/// The lines outside `#[cfg(test)]` modules, with their numbers. Modules are taken to end at the
/// first line that is a closing brace as deep as the attribute.
fn code_lines(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            out.push((i + 1, line));
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        for (_, l) in lines.by_ref() {
            let declaration =
                l.trim_end().ends_with(';') && l.starts_with(indent) && !l[indent.len()..].starts_with(' ');
            if l == end || declaration {
                break;
            }
        }
    }
    out
}

/// A line without its comment and without what stands between quotes.
fn bare(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '\'' if !quoted && chars.clone().nth(1) == Some('\'') => {
                chars.next();
                chars.next();
            }
            '"' => quoted = !quoted,
            '/' if !quoted && chars.peek() == Some(&'/') => break,
            c if !quoted => out.push(c),
            _ => {}
        }
    }
    out
}

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Crates of this workspace that a crate uses outside of tests.
fn edges(name: &str) -> BTreeSet<String> {
    let manifest = text(&format!("{name}/Cargo.toml"));
    let mut section = "";
    let mut out = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && section != "[dev-dependencies]" {
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if let Some(other) = key.strip_prefix("spate-") {
                out.insert(other.to_owned());
            }
        }
    }
    out
}

#[test]
fn crates_depend_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = [
        ("engine", &[][..]),
        ("planner", &["engine"]),
        ("store", &["engine"]),
        ("server", &["engine", "planner"]),
        ("client", &["engine", "planner", "server", "benches"]),
        ("sql-tests", &["engine", "planner", "server", "client"]),
        ("benches", &["engine", "planner", "server"]),
    ]
    .into();
    let manifest = text("Cargo.toml");
    let members = manifest.lines().find(|l| l.starts_with("members")).unwrap();
    let members: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    assert_eq!(members, allowed.keys().copied().collect(), "a new crate needs its edges here");
    let mut found = Vec::new();
    for (name, may) in &allowed {
        let has = edges(name);
        found.extend(has.iter().filter(|h| !may.contains(&h.as_str())).map(|h| format!("{name} -> {h}")));
    }
    none("edges between crates that must not be", found);
    // The check itself sees edges.
    assert!(edges("server").contains("planner"));
}

/// Names of a file's lines, outside tests, that contain `part` of a path, and what follows it.
fn uses(dir: &str, part: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (path, text) in rust_files().iter().filter(|(p, _)| p.starts_with(dir) && !is_test_file(p)) {
        for (n, line) in code_lines(text) {
            let line = bare(line);
            for (at, _) in line.match_indices(part) {
                let rest: String =
                    line[at + part.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                out.push((format!("{path}:{n}"), rest));
            }
        }
    }
    out
}

#[test]
fn the_planner_sees_only_types_and_plans_of_the_engine() {
    let used = uses("planner/src/", "spate_engine::");
    assert!(used.len() > 20, "the check no longer finds anything");
    let bad = used.into_iter().filter(|(_, m)| m != "types" && m != "plan");
    none("the planner uses more of the engine", bad.map(|(at, m)| format!("{at}: spate_engine::{m}")).collect());
}

#[test]
fn the_protocol_knows_nobody() {
    let dir = "client/src/protocol/";
    let own = uses(dir, "crate::").into_iter().map(|(at, m)| format!("{at}: crate::{m}"));
    let others = uses(dir, "spate_").into_iter().map(|(at, m)| format!("{at}: spate_{m}"));
    none("the client's protocol uses other parts of the project", own.chain(others).collect());
    assert!(uses(dir, "arrow_flight::").len() > 5, "the check no longer finds anything");
}

#[test]
fn modules_of_the_engine_depend_one_way() {
    // What a module may never use: types know nobody, plans are data, connectors and operators do
    // not know who drives them.
    let never: &[(&str, &[&str])] = &[
        ("types", &["plan", "operator", "state", "exchange", "task", "connector", "checkpoint", "env", "sim"]),
        ("plan", &["operator", "state", "exchange", "task", "connector", "checkpoint", "env", "sim"]),
        ("operator", &["exchange", "task", "checkpoint", "env", "sim"]),
        ("connector", &["operator", "state", "exchange", "task", "checkpoint", "plan", "sim"]),
        ("exchange", &["operator", "state", "connector", "checkpoint", "sim"]),
        ("state", &["connector", "checkpoint", "env", "sim"]),
        ("task", &["sim"]),
        ("checkpoint", &["connector", "operator", "sim"]),
    ];
    let mut found = Vec::new();
    let mut seen = 0;
    for (module, forbidden) in never {
        for (at, used) in uses(&format!("engine/src/{module}/"), "crate::") {
            seen += 1;
            if forbidden.contains(&used.as_str()) {
                found.push(format!("{at}: crate::{used}"));
            }
        }
    }
    none("a module of the engine uses what it must not know", found);
    assert!(seen > 50, "the check no longer finds anything");
}

#[test]
fn every_file_says_what_it_is() {
    let bad = rust_files().into_iter().filter(|(_, t)| !t.starts_with("//! ")).map(|(p, _)| p).collect();
    none("no //! on the first line", bad);
}

#[test]
fn files_are_not_too_long() {
    let mut bad = Vec::new();
    for (path, text) in rust_files().iter().filter(|(p, _)| !is_test_file(p)) {
        let n = code_lines(text).len();
        if n > MAX_LINES {
            bad.push(format!("{path}: {n} lines"));
        }
    }
    none("files over the limit", bad);
}

/// Lines of product code in which `is_bad` holds; `skip` names files that are let pass.
fn offenders(skip: impl Fn(&str) -> bool, is_bad: impl Fn(&str) -> bool) -> Vec<String> {
    let mut bad = Vec::new();
    for (path, text) in rust_files().iter().filter(|(p, _)| !is_test_file(p) && !skip(p)) {
        for (n, line) in code_lines(text) {
            if is_bad(&bare(line)) {
                bad.push(format!("{path}:{n}: {}", line.trim()));
            }
        }
    }
    bad
}

#[test]
fn no_unwrap_outside_tests() {
    let main = |p: &str| p.ends_with("/main.rs");
    // A parser's own `expect` gives a Result.
    let bad = offenders(main, |l| l.contains(".unwrap()") || (l.contains(".expect(") && !l.contains("self.expect(")));
    none("unwrap or expect", bad);
}

#[test]
fn no_ambient_time_or_randomness_outside_env() {
    // The command line shows times, benchmarks measure them; neither is part of a query.
    let skip = |p: &str| p.starts_with("engine/src/env/") || p.starts_with("client/") || p.starts_with("benches/");
    let words =
        ["SystemTime::now", "Instant::now", "thread_rng", "rand::rng(", "rand::random", "from_os_rng", "RandomState"];
    none("ambient time or randomness", offenders(skip, |l| words.iter().any(|w| l.contains(w))));
}

#[test]
fn no_files_outside_env_and_connectors() {
    // Connectors read and write what is the user's; what is the engine's own goes through env.
    let inside = ["engine/src/", "planner/src/", "server/src/"];
    let may = ["engine/src/env/", "engine/src/connector/"];
    let skip = |p: &str| !inside.iter().any(|d| p.starts_with(d)) || may.iter().any(|d| p.starts_with(d));
    let words = ["std::fs", "File::open", "File::create", "OpenOptions", "tempfile::", "tokio::fs"];
    none("files", offenders(skip, |l| words.iter().any(|w| l.contains(w))));
}

#[test]
fn nothing_is_left_unfinished() {
    let words = [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["dbg", "!("].concat()];
    none("unfinished code", offenders(|_| false, |l| words.iter().any(|w| l.contains(w.as_str()))));
}

#[test]
fn files_speak_of_the_project_alone() {
    // Put together here, so that this file does not contain them.
    let words =
        [["/wo", "rk/"].concat(), ["../sh", "ared"].concat(), ["/tmp/", "wt/"].concat(), ["/tmp/", "tgt"].concat()];
    let mut bad = Vec::new();
    for path in all_files() {
        for (n, line) in text(&path).lines().enumerate() {
            if words.iter().any(|w| line.contains(w.as_str())) {
                bad.push(format!("{path}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    none("paths that exist on one machine only", bad);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut bad = Vec::new();
    let mut links = 0;
    for path in all_files().into_iter().filter(|p| p.ends_with(".md")) {
        let text = text(&path);
        let dir = root().join(&path).parent().unwrap().to_owned();
        for (at, _) in text.match_indices("](") {
            let target: String = text[at + 2..].chars().take_while(|c| !matches!(c, ')' | ' ' | '\n')).collect();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            if !dir.join(file).exists() {
                bad.push(format!("{path}: {target}"));
            }
        }
        // Paths of this project in backticks.
        for quoted in text.split('`').skip(1).step_by(2) {
            let tops = ["engine/", "planner/", "server/", "client/", "sql-tests/", "benches/", "docs/", "examples/"];
            let plain = quoted.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
            if plain && tops.iter().any(|t| quoted.starts_with(t)) {
                links += 1;
                if !root().join(quoted).exists() {
                    bad.push(format!("{path}: `{quoted}`"));
                }
            }
        }
    }
    none("links that lead nowhere", bad);
    assert!(links > 10, "found only {links} links");
}

/// The two commands that a newcomer runs stand first, each alone on its line.
#[test]
fn the_readme_begins_with_its_commands() {
    let text = text("README.md");
    let first = |word: &str| text.lines().find(|l| l.starts_with(word)).map(str::to_owned);
    assert_eq!(first("cargo run").as_deref(), Some("cargo run --release --bin spate -- -f examples/tour.sql"));
    assert_eq!(first("cargo test").as_deref(), Some("cargo test --workspace"));
}

#[test]
fn the_checks_see_what_they_look_for() {
    assert_eq!(bare(r#"let x = "a.unwrap()"; y.unwrap() // .unwrap()"#), "let x = ; y.unwrap() ");
    assert_eq!(bare(r#"let q = '"'; z"#), "let q = ; z");
    let text = "a\n#[cfg(test)]\nmod tests {\n    x\n}\nb\n#[cfg(test)]\nmod more;\nc";
    assert_eq!(code_lines(text), [(1, "a"), (6, "b"), (9, "c")]);
    assert!(is_test_file("engine/src/connector/file_tests.rs") && !is_test_file("engine/src/state/bag.rs"));
}
