//! Queries: cutting one out of a statement, refusing what would be ignored silently, and
//! the statements that are little more than a query.

use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Query, Select, SetExpr, TableFactor, Visit, Visitor};
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use spate_engine::types::error::{ErrorKind, Result, SpateError};

use super::super::dialect::{DIALECT, left_marker};
use super::super::error;
use super::super::statement::{Explain, ExplainMode, Input, Statement, Subscribe};
use super::{Cursor, is_word, refuse_at};

/// Clauses that may follow a query, at which it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// None; `EMIT ON WINDOW CLOSE` is refused.
    Query,
    /// `EMIT ON WINDOW CLOSE`.
    View,
    /// `EMIT ON WINDOW CLOSE`, `FORMAT … ENCODE …`.
    Sink,
    /// `EMIT ON WINDOW CLOSE`, `WITH SNAPSHOT`, `NO SNAPSHOT`, `AS OF EPOCH`.
    Subscribe,
    /// `ON CONFLICT`, `RETURNING`.
    Insert,
    /// `WITH DATA`, `WITH NO DATA`.
    Table,
}

/// A query cut out of a statement.
pub(super) struct Cut {
    pub query: Box<Query>,
    pub text: String,
    pub emit_on_window_close: bool,
}

impl Cursor<'_> {
    /// Whether a query starts here.
    pub(super) fn at_query(&self) -> bool {
        match self.peek(0) {
            Token::LParen => true,
            token => ["select", "with", "values", "table"].iter().any(|w| is_word(token, w)),
        }
    }

    /// Reads a query up to the first clause of `tail`, and its `EMIT ON WINDOW CLOSE`.
    pub(super) fn query(&mut self, tail: Tail) -> Result<Cut> {
        if !self.at_query() {
            return Err(self.unexpected_word("a query", &["SELECT", "VALUES", "WITH"]));
        }
        let start = self.at;
        let cut = self.find_tail(tail);
        let end = self.found_at(cut);
        let (tokens, origin) = group_elements(mark_left_joins(self.expand_table_queries(start, cut)));
        let mut parser = Parser::new(&DIALECT).with_tokens_with_locations(tokens);
        let query = parser.parse_query().map_err(|e| error::from_parser(e, &end))?;
        self.go_to(origin.get(parser.index()).copied().unwrap_or(cut));
        if self.at < cut {
            return Err(self.unexpected("the end of the query"));
        }
        check(&query).map_err(|what| refuse_at(&self.found_at(start), what))?;
        let text = self.text.get(self.byte_range(start, cut)).unwrap_or_default().to_string();
        let emit = self.found();
        let emit_on_window_close = self.eat("EMIT ON WINDOW CLOSE");
        if emit_on_window_close && !matches!(tail, Tail::View | Tail::Sink | Tail::Subscribe) {
            return Err(refuse_at(&emit, "EMIT ON WINDOW CLOSE outside a continuous query"));
        }
        Ok(Cut { query, text, emit_on_window_close })
    }

    /// The tokens from `start` to `cut` with every query `TABLE t` written as
    /// `SELECT * FROM t`, which sqlparser and DataFusion know better, and the index that
    /// each had.
    fn expand_table_queries(&self, start: usize, cut: usize) -> (Vec<TokenWithSpan>, Vec<usize>) {
        let mut tokens = Vec::with_capacity(cut - start);
        let mut origin = Vec::with_capacity(cut - start);
        let mut before = None;
        for (index, t) in self.tokens.iter().enumerate().take(cut).skip(start) {
            if matches!(t.token, Token::Whitespace(_)) {
                tokens.push(t.clone());
                origin.push(index);
                continue;
            }
            let opens = before.is_none_or(|token: &Token| {
                *token == Token::LParen
                    || ["union", "all", "except", "intersect", "distinct"].iter().any(|w| is_word(token, w))
            });
            if opens && is_word(&t.token, "table") && self.is_table_query(index) {
                for token in [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")] {
                    tokens.push(TokenWithSpan::new(token, t.span));
                    origin.push(index);
                }
            } else {
                tokens.push(t.clone());
                origin.push(index);
            }
            before = Some(&t.token);
        }
        (tokens, origin)
    }

    /// Whether `TABLE` at `index` is followed by a name, and not by more arguments (or the PARTITION BY
    /// of an argument).
    fn is_table_query(&self, index: usize) -> bool {
        let mut rest = self.tokens[index + 1..].iter().filter(|t| !matches!(t.token, Token::Whitespace(_)));
        while let Some(TokenWithSpan { token: Token::Word(_), .. }) = rest.next() {
            match rest.next().map(|t| &t.token) {
                Some(Token::Period) => {}
                Some(other) => return *other != Token::Comma && !is_word(other, "partition"),
                None => return true,
            }
        }
        false
    }

    /// Index of the first token after the query that starts here.
    fn find_tail(&self, tail: Tail) -> usize {
        let mut depth = 0usize;
        let words: Vec<(usize, &Token)> = self.tokens[self.at..]
            .iter()
            .enumerate()
            .filter(|(_, t): &(usize, &TokenWithSpan)| !matches!(t.token, Token::Whitespace(_)))
            .map(|(i, t)| (self.at + i, &t.token))
            .collect();
        for (n, (index, token)) in words.iter().enumerate() {
            match token {
                Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
                Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
                Token::Word(_) if depth == 0 && n > 0 => {
                    let next = |k: usize| words.get(n + k).map_or(&Token::EOF, |w| w.1);
                    let follow = |ws: &[&str]| ws.iter().enumerate().all(|(k, w)| is_word(next(k), w));
                    let clause = follow(&["emit", "on", "window"])
                        // Never part of a query of ours: a CTE has a name after WITH.
                        || (follow(&["with"]) && *next(1) == Token::LParen)
                        || match tail {
                            Tail::Query | Tail::View => false,
                            Tail::Sink => follow(&["format"]) && is_word(next(2), "encode"),
                            Tail::Subscribe => {
                                follow(&["with", "snapshot"])
                                    || follow(&["no", "snapshot"])
                                    || follow(&["without", "snapshot"])
                                    || follow(&["as", "of", "epoch"])
                            }
                            Tail::Table => follow(&["with", "data"]) || follow(&["with", "no", "data"]),
                            Tail::Insert => {
                                follow(&["returning"])
                                    || (follow(&["on", "conflict"])
                                        && (is_word(next(2), "do") || *next(2) == Token::LParen))
                            }
                        };
                    if clause {
                        return *index;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    pub(super) fn query_statement(&mut self) -> Result<Statement> {
        Ok(Statement::Query(self.query(Tail::Query)?.query))
    }

    /// `SUBSCRIBE [TO] v | query [WITH SNAPSHOT | NO SNAPSHOT] [AS OF EPOCH n]`.
    pub(super) fn subscribe(&mut self) -> Result<Statement> {
        self.expect("SUBSCRIBE")?;
        self.eat("TO");
        let target = if self.at_query() {
            let cut = self.query(Tail::Subscribe)?;
            Input::Query { query: cut.query, text: cut.text, emit_on_window_close: cut.emit_on_window_close }
        } else {
            Input::Relation(self.name("a relation or a query")?)
        };
        let mut snapshot = None;
        let mut as_of = None;
        loop {
            let at = self.found();
            if self.eat("WITH SNAPSHOT") || self.eat("SNAPSHOT") {
                once(&mut snapshot, true, &at)?;
            } else if self.eat("NO SNAPSHOT") || self.eat("WITHOUT SNAPSHOT") {
                once(&mut snapshot, false, &at)?;
            } else if self.eat("AS OF EPOCH") {
                let epoch = self.number("an epoch's number")?;
                once(&mut as_of, epoch, &at)?;
            } else {
                break;
            }
        }
        Ok(Statement::Subscribe(Subscribe { target, snapshot: snapshot.unwrap_or(true), as_of }))
    }

    /// `EXPLAIN [VERBOSE] [LOGICAL | STREAM | FRAGMENTS | FAULT [FORMAT TEXT | JSON]] statement`, also
    /// with the words in parentheses.
    pub(super) fn explain(&mut self) -> Result<Statement> {
        const WORDS: &[&str] = &["ANALYZE", "FAULT", "FORMAT", "FRAGMENTS", "LOGICAL", "STREAM", "VERBOSE"];
        self.expect("EXPLAIN")?;
        let listed = *self.peek(0) == Token::LParen && WORDS.iter().any(|w| is_word(self.peek(1), w));
        if listed {
            self.advance();
        }
        let mut mode = None;
        let mut verbose = None;
        let mut json = None;
        let mut format_at = None;
        loop {
            let at = self.found();
            if self.eat("VERBOSE") {
                once(&mut verbose, true, &at)?;
            } else if self.eat("LOGICAL") {
                once(&mut mode, ExplainMode::Logical, &at)?;
            } else if self.eat("STREAM") {
                once(&mut mode, ExplainMode::Stream, &at)?;
            } else if self.eat("FRAGMENTS") {
                once(&mut mode, ExplainMode::Fragments, &at)?;
            } else if self.eat("FAULT") {
                once(&mut mode, ExplainMode::Fault, &at)?;
            } else if self.eat("FORMAT") {
                format_at = Some(at.clone());
                if self.eat("JSON") {
                    once(&mut json, true, &at)?;
                } else if self.eat("TEXT") {
                    once(&mut json, false, &at)?;
                } else {
                    return Err(self.unexpected_word("a format", &["JSON", "TEXT"]));
                }
            } else if self.is("ANALYZE") {
                return Err(self.refuse(&format!("EXPLAIN {}", self.word().unwrap_or_default().to_uppercase())));
            } else if !listed {
                break;
            } else {
                return Err(self.unexpected_word("an option of EXPLAIN", WORDS));
            }
            if listed && self.eat_token(&Token::RParen) {
                break;
            }
            if listed {
                self.expect_token(&Token::Comma)?;
            }
        }
        if let Some(at) = format_at.filter(|_| json == Some(true) && mode != Some(ExplainMode::Fault)) {
            return Err(refuse_at(&at, "EXPLAIN (FORMAT JSON) without FAULT"));
        }
        let at = self.found();
        if self.at_end() {
            return Err(self.unexpected("a statement"));
        }
        if self.is("EXPLAIN") {
            return Err(self.refuse("EXPLAIN EXPLAIN"));
        }
        // A query is shown as it would be kept up to date, so it may wait for windows.
        let (inner, emit_on_window_close) = if self.at_query() {
            let cut = self.query(Tail::View)?;
            (Statement::Query(cut.query), cut.emit_on_window_close)
        } else {
            (self.statement()?, false)
        };
        match inner {
            Statement::Query(_)
            | Statement::CreateMaterializedView(_)
            | Statement::CreateView(_)
            | Statement::CreateSink(_)
            | Statement::Insert(_)
            | Statement::Subscribe(_) => Ok(Statement::Explain(Explain {
                mode: mode.unwrap_or_default(),
                verbose: verbose.unwrap_or(false),
                json: json.unwrap_or(false),
                statement: Box::new(inner),
                emit_on_window_close,
            })),
            other => Err(refuse_at(&at, &format!("EXPLAIN {}", other.verb()))),
        }
    }
}

/// Sets a clause's value, which may be given once.
pub(super) fn once<T>(slot: &mut Option<T>, value: T, at: &error::Found) -> Result<()> {
    if slot.is_some() {
        let what = at.text.as_deref().unwrap_or("clause").to_uppercase();
        return Err(SpateError::new(ErrorKind::Syntax, format!("conflicting or redundant {what}"))
            .at(at.position.0, at.position.1));
    }
    *slot = Some(value);
    Ok(())
}

/// Names the first thing in a query that the planner would pass over without a word.
fn check(query: &Query) -> std::result::Result<(), &'static str> {
    struct Finder(&'static str);
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, q: &Query) -> ControlFlow<()> {
            let found = if !q.locks.is_empty() {
                Some("FOR UPDATE or FOR SHARE")
            } else if q.for_clause.is_some() {
                Some("FOR XML or FOR JSON")
            } else if q.settings.is_some() || q.format_clause.is_some() || !q.pipe_operators.is_empty() {
                Some("SETTINGS, FORMAT or |> in a query")
            } else {
                body(&q.body)
            };
            self.stop(found)
        }

        fn pre_visit_select(&mut self, s: &Select) -> ControlFlow<()> {
            self.stop(s.into.is_some().then_some("SELECT INTO"))
        }

        fn pre_visit_table_factor(&mut self, t: &TableFactor) -> ControlFlow<()> {
            let found = match t {
                TableFactor::Table { with_hints, partitions, sample, index_hints, .. } => {
                    if !with_hints.is_empty() || !index_hints.is_empty() {
                        Some("WITH (…) after a table's name")
                    } else if !partitions.is_empty() {
                        Some("PARTITION after a table's name")
                    } else if sample.is_some() {
                        Some("TABLESAMPLE")
                    } else {
                        None
                    }
                }
                TableFactor::UNNEST { with_offset: true, .. } => Some("UNNEST WITH OFFSET"),
                TableFactor::Derived { sample: Some(_), .. } => Some("TABLESAMPLE"),
                _ => None,
            };
            self.stop(found)
        }
    }
    impl Finder {
        fn stop(&mut self, found: Option<&'static str>) -> ControlFlow<()> {
            match found {
                Some(what) => {
                    self.0 = what;
                    ControlFlow::Break(())
                }
                None => ControlFlow::Continue(()),
            }
        }
    }
    fn body(set: &SetExpr) -> Option<&'static str> {
        match set {
            SetExpr::Insert(_) => Some("INSERT in a query"),
            SetExpr::Update(_) => Some("UPDATE in a query"),
            SetExpr::Delete(_) => Some("DELETE in a query"),
            SetExpr::Merge(_) => Some("MERGE in a query"),
            SetExpr::SetOperation { left, right, .. } => body(left).or_else(|| body(right)),
            _ => None,
        }
    }
    let mut finder = Finder("");
    match query.visit(&mut finder) {
        ControlFlow::Break(()) => Err(finder.0),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Puts elements of ROLLUP, CUBE and GROUPING SETS that begin with a parenthesis and go on behind it,
/// `(a)::int`, into parentheses: sqlparser takes the first for the whole element.
fn group_elements((tokens, origin): (Vec<TokenWithSpan>, Vec<usize>)) -> (Vec<TokenWithSpan>, Vec<usize>) {
    let visible: Vec<usize> = (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
    let token = |n: usize| visible.get(n).map_or(&Token::EOF, |i| &tokens[*i].token);
    // Where to put a parenthesis before and behind.
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for n in 0..visible.len() {
        let starts = ["rollup", "cube", "sets"].iter().any(|w| is_word(token(n), w));
        if !starts || *token(n + 1) != Token::LParen {
            continue;
        }
        let (mut depth, mut first, mut closed) = (1usize, n + 2, None);
        for k in n + 2..visible.len() {
            match token(k) {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            let ends = depth == 0 || (depth == 1 && *token(k) == Token::Comma);
            if ends {
                if closed.is_some_and(|c| c + 1 < k) {
                    before.push(visible[first]);
                    behind.push(visible[k - 1]);
                }
                (first, closed) = (k + 1, None);
            } else if depth == 1 && closed.is_none() && *token(k) == Token::RParen && *token(first) == Token::LParen {
                closed = Some(k);
            }
            if depth == 0 {
                break;
            }
        }
    }
    if before.is_empty() {
        return (tokens, origin);
    }
    let mut out = Vec::with_capacity(tokens.len() + 2 * before.len());
    let mut from = Vec::with_capacity(out.capacity());
    for (i, (t, o)) in tokens.into_iter().zip(origin).enumerate() {
        let span = t.span;
        let mut push = |token: TokenWithSpan| {
            out.push(token);
            from.push(o);
        };
        if before.contains(&i) {
            push(TokenWithSpan::new(Token::LParen, span));
        }
        push(t);
        if behind.contains(&i) {
            push(TokenWithSpan::new(Token::RParen, span));
        }
    }
    (out, from)
}

/// sqlparser knows `ASOF JOIN` alone: of `ASOF LEFT [OUTER] JOIN` the words between go, and the
/// condition stands in a marker. `origin` holds the index that each token had.
fn mark_left_joins((tokens, origin): (Vec<TokenWithSpan>, Vec<usize>)) -> (Vec<TokenWithSpan>, Vec<usize>) {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
    let word = |n: usize| words.get(n).map_or(&Token::EOF, |i| &tokens[*i].token);
    let (mut gone, mut opens, mut closes) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..words.len() {
        let outer = usize::from(is_word(word(n + 2), "outer"));
        if !(is_word(word(n), "asof") && is_word(word(n + 1), "left") && is_word(word(n + 2 + outer), "join")) {
            continue;
        }
        let Some(at) = (n..words.len()).find(|k| is_word(word(*k), "match_condition")) else { continue };
        if *word(at + 1) != Token::LParen {
            continue;
        }
        let mut depth = 0usize;
        let end = (at + 1..words.len()).find(|k| {
            match word(*k) {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0
        });
        if let Some(end) = end {
            gone.extend(words.iter().skip(n + 1).take(1 + outer).copied());
            opens.extend(words.get(at + 1));
            closes.extend(words.get(end));
        }
    }
    if gone.is_empty() {
        return (tokens, origin);
    }
    let (mut marked, mut from) = (Vec::with_capacity(tokens.len()), Vec::with_capacity(tokens.len()));
    for (i, (token, index)) in tokens.into_iter().zip(origin).enumerate() {
        let span = token.span;
        let mut put = |token: TokenWithSpan| {
            marked.push(token);
            from.push(index);
        };
        if gone.contains(&i) {
            continue;
        }
        let also = if opens.contains(&i) { Some(token.clone()) } else { None };
        if closes.contains(&i) {
            put(token.clone());
        }
        put(token);
        if let Some(paren) = also {
            put(TokenWithSpan::new(left_marker(), span));
            put(paren);
        }
    }
    (marked, from)
}
