//! The dialect: PostgreSQL's, plus struct and map literals, wildcard exclusions,
//! QUALIFY, table versions and `TABLE t` as an argument of a table function.

use std::any::TypeId;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, UnaryOperator,
};
use datafusion_sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, Word};

/// Spate's SQL dialect.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpateDialect;

/// The one instance that parsers borrow.
pub static DIALECT: SpateDialect = SpateDialect;

/// Name of the marker function that stands for `TABLE t` in an argument list.
const TABLE_ARGUMENT: &str = "TABLE";
/// Name of the marker function that stands for `t PARTITION BY columns` in an argument list.
const PARTITION_BY: &str = "PARTITION BY";

/// NOT may stand before NOT this often: every one makes the tree deeper.
const MAX_NEGATIONS: usize = 256;

/// Name of the marker function that stands around the condition of an `ASOF LEFT JOIN`.
const ASOF_LEFT: &str = "ASOF LEFT";

/// Reserved words that start or join clauses, and so are never columns unless quoted.
const CLAUSES: &[Keyword] = &[
    Keyword::AND,
    Keyword::AS,
    Keyword::ELSE,
    Keyword::END,
    Keyword::EXCEPT,
    Keyword::FROM,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::INTERSECT,
    Keyword::INTO,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::ON,
    Keyword::OR,
    Keyword::ORDER,
    Keyword::THEN,
    Keyword::UNION,
    Keyword::USING,
    Keyword::WHEN,
    Keyword::WHERE,
    Keyword::WITH,
];

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// The relation that an argument written `TABLE t` names, if that is what `expr` is.
pub fn table_argument(expr: &Expr) -> Option<ObjectName> {
    let Expr::Function(f) = expr else { return None };
    let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice() else { return None };
    // An unquoted TABLE cannot be a function's name, and a quoted one keeps its quotes.
    if name.value != TABLE_ARGUMENT || name.quote_style.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &f.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(id)))] => Some(ObjectName::from(vec![id.clone()])),
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(ids)))] => {
            Some(ObjectName::from(ids.clone()))
        }
        _ => None,
    }
}

/// The table and the columns of an argument written `t PARTITION BY columns`, if that is what
/// `expr` is.
pub fn partition_argument(expr: &Expr) -> Option<(Expr, Vec<Expr>)> {
    let Expr::Function(f) = expr else { return None };
    let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice() else { return None };
    // No name has a space, unless it is quoted.
    if name.value != PARTITION_BY || name.quote_style.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &f.args else { return None };
    let mut args = list.args.iter().filter_map(|a| match a {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
        _ => None,
    });
    Some((args.next()?, args.collect()))
}

/// The marker that opens the condition of an `ASOF LEFT JOIN`: see [`left_condition`].
pub(super) fn left_marker() -> Token {
    Token::Word(Word { value: ASOF_LEFT.to_owned(), quote_style: None, keyword: Keyword::NoKeyword })
}

/// The condition of an `ASOF LEFT JOIN`, if that is what the `MATCH_CONDITION` belongs to.
pub fn left_condition(condition: &Expr) -> Option<Expr> {
    let Expr::Function(f) = condition else { return None };
    let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice() else { return None };
    if name.value != ASOF_LEFT || name.quote_style.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &f.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] => Some(e.clone()),
        _ => None,
    }
}

/// How many NOT stand here, but for one that belongs to EXISTS.
fn negations(parser: &Parser) -> usize {
    let word = |n: usize, keyword: Keyword| matches!(&parser.peek_nth_token_ref(n).token, Token::Word(w) if w.quote_style.is_none() && w.keyword == keyword);
    (0..=MAX_NEGATIONS).take_while(|n| word(*n, Keyword::NOT) && !word(n + 1, Keyword::EXISTS)).count()
}

fn question() -> Token {
    Token::Placeholder("?".to_owned())
}

/// Parses what follows PARTITION BY: one column, or several in parentheses.
fn partition_columns(parser: &mut Parser) -> Result<Vec<Expr>, ParserError> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(vec![parser.parse_expr()?]);
    }
    let columns = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(columns)
}

fn marker(name: Ident, args: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn table_marker(keyword: Ident, parts: Vec<Ident>) -> Expr {
    let relation = match <[Ident; 1]>::try_from(parts) {
        Ok([one]) => Expr::Identifier(one),
        Err(parts) => Expr::CompoundIdentifier(parts),
    };
    marker(keyword, vec![relation])
}

/// Methods that answer `true`; all others keep the trait's default.
macro_rules! supported {
    ($($name:ident),* $(,)?) => { $(fn $name(&self) -> bool { true })* };
}

impl Dialect for SpateDialect {
    /// Poses as PostgreSQL where the parser asks for a dialect by type: `^` is a power
    /// and `#` exclusive or, CTEs may be MATERIALIZED.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('"')
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRES.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRES.is_identifier_part(ch)
    }

    // `is_custom_operator_part` stays false: the tokenizer would otherwise read `a<-1` as
    // an operator `<-`. The operators that matter (`->`, `~*`, `@>` …) are tokens of their own.

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        // Elsewhere nothing stands before PARTITION BY that an expression could end with.
        if parser.peek_keyword(Keyword::PARTITION)
            && matches!(&parser.peek_nth_token_ref(1).token, Token::Word(w) if w.keyword == Keyword::BY)
        {
            return Some(Ok(POSTGRES.prec_value(Precedence::Period)));
        }
        if parser.peek_token_ref().token == question() {
            return Some(Ok(POSTGRES.prec_value(Precedence::PgOther)));
        }
        POSTGRES.get_next_precedence(parser)
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        POSTGRES.prec_value(prec)
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(kw)
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        // sqlparser would take these for columns: `SELECT a, FROM t` would select `from` as t.
        let next = parser.peek_token_ref();
        if let Token::Word(w) = &next.token
            && w.quote_style.is_none()
            && CLAUSES.contains(&w.keyword)
        {
            return Some(parser.expected_ref("an expression", next));
        }
        // One after the other rather than each within the one before: sqlparser, at its limit, would
        // take the next NOT for a column's name.
        let negations = negations(parser);
        if negations > MAX_NEGATIONS {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        if negations > 0 {
            for _ in 0..negations {
                parser.next_token();
            }
            let inner = parser.parse_subexpr(self.prec_value(Precedence::UnaryNot));
            let not = |e| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(e) };
            return Some(inner.map(|e| (0..negations).fold(e, |e, _| not(e))));
        }
        // Only right after `(` or `,` and with more arguments behind it: `(TABLE t)` alone
        // is a subquery.
        if !parser.peek_keyword(Keyword::TABLE)
            || !matches!(parser.get_current_token().token, Token::LParen | Token::Comma)
        {
            return None;
        }
        let mut n = 2;
        while parser.peek_nth_token_ref(n).token == Token::Period {
            n += 2;
        }
        let partitioned =
            matches!(&parser.peek_nth_token_ref(n).token, Token::Word(w) if w.keyword == Keyword::PARTITION);
        if parser.peek_nth_token_ref(n).token != Token::Comma && !partitioned {
            return None;
        }
        let keyword = parser.next_token();
        let mut parts = Vec::new();
        loop {
            match parser.parse_identifier() {
                Ok(id) => parts.push(id),
                Err(e) => return Some(Err(e)),
            }
            if !parser.consume_token(&Token::Period) {
                break;
            }
        }
        let mut marker = Ident::new(TABLE_ARGUMENT);
        marker.span = keyword.span;
        Some(Ok(table_marker(marker, parts)))
    }

    /// sqlparser takes all that follows `IS DISTINCT FROM` for its right side, so that
    /// `a IS DISTINCT FROM b AND c` would compare a with `b AND c`.
    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        let at = parser.peek_token_ref().span;
        if parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
            let mut name = Ident::new(PARTITION_BY);
            name.span = at;
            let columns = partition_columns(parser);
            return Some(columns.map(|c| marker(name, std::iter::once(expr.clone()).chain(c).collect())));
        }
        // `?`, `?|` and `?&`, which the tokenizer takes for a parameter.
        if parser.consume_token(&question()) {
            let op = if parser.consume_token(&Token::Pipe) {
                BinaryOperator::QuestionPipe
            } else if parser.consume_token(&Token::Ampersand) {
                BinaryOperator::QuestionAnd
            } else {
                BinaryOperator::Question
            };
            let right = parser.parse_subexpr(precedence);
            return Some(right.map(|r| Expr::BinaryOp { left: Box::new(expr.clone()), op, right: Box::new(r) }));
        }
        // The left side is copied only here: a copy per operator would make chains quadratic, and
        // recurse as deep as they are.
        if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            let right = parser.parse_subexpr(precedence);
            return Some(right.map(|r| Expr::IsDistinctFrom(Box::new(expr.clone()), Box::new(r))));
        }
        if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            let right = parser.parse_subexpr(precedence);
            return Some(right.map(|r| Expr::IsNotDistinctFrom(Box::new(expr.clone()), Box::new(r))));
        }
        None
    }

    supported!(
        allow_extract_custom,
        allow_extract_single_quotes,
        support_map_literal_syntax,
        supports_array_typedef_with_brackets,
        supports_bitwise_shift_operators,
        supports_comma_separated_trim,
        supports_dictionary_syntax,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        supports_interval_options,
        supports_map_literal_with_angle_brackets,
        supports_match_recognize,
        supports_named_fn_args_with_assignment_operator,
        supports_nested_comments,
        supports_notnull_operator,
        supports_numeric_literal_underscores,
        supports_parens_around_table_factor,
        supports_select_wildcard_except,
        supports_select_wildcard_exclude,
        supports_select_wildcard_rename,
        supports_select_wildcard_replace,
        supports_string_escape_constant,
        supports_string_literal_concatenation_with_newline,
        supports_struct_literal,
        supports_table_versioning,
        supports_unicode_string_literal,
        supports_window_clause_named_window_reference,
        supports_window_function_null_treatment_arg,
    );
}
