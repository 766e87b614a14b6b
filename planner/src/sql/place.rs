//! Where in a statement an error belongs that knows no place of its own: at the first thing that
//! its message names.

use datafusion_sql::sqlparser::ast::Ident;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use spate_engine::types::error::{ErrorKind, SpateError};

use super::fold;
use super::split::tokenize;

/// Line and column, from 1, of what `error` names in `statement`: an operator or function that it
/// says does not exist, or the first name in double quotes that the statement holds. `None` when
/// it names nothing, or nothing that is there.
pub fn place_of(statement: &str, error: &SpateError) -> Option<(u64, u64)> {
    if error.kind() == ErrorKind::Internal {
        return None;
    }
    let tokens = tokenize(statement).ok()?;
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let message = error.message();
    let found = if let Some((_, operation)) = message.split_once("operator does not exist: ") {
        operator(&tokens, operation)
    } else if let Some(name) = function_name(message) {
        (0..tokens.len()).find(|&i| is(tokens[i], name) && tokens.get(i + 1).is_some_and(|t| t.token == Token::LParen))
    } else {
        let pieces: Vec<&str> = message.split('"').collect();
        let names = || pieces.chunks_exact(2).map(|p| (p[0].ends_with("option "), p[1]));
        let options = names().filter(|(option, _)| *option);
        let others = names().filter(|(option, _)| !*option);
        options.chain(others).find_map(|(_, name)| (0..tokens.len()).find(|&i| starts(&tokens[i..], name)))
    };
    found.map(|i| (tokens[i].span.start.line, tokens[i].span.start.column))
}

fn function_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("function ")?;
    let name = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?];
    rest.contains("does not exist").then_some(name)
}

/// The only operator that can be meant.
fn operator(tokens: &[&TokenWithSpan], operation: &str) -> Option<usize> {
    let is_operator = |t: &Token| !matches!(t, Token::Word(_) | Token::Comma | Token::LParen | Token::RParen);
    let mut all = (0..tokens.len())
        .filter(|&i| is_operator(&tokens[i].token) && operation.contains(&format!(" {} ", tokens[i].token)));
    all.next().filter(|_| all.next().is_none())
}

/// Whether the tokens start with `name`, whole or dotted.
fn starts(tokens: &[&TokenWithSpan], name: &str) -> bool {
    let Some(first) = tokens.first() else { return false };
    if is(first, name) {
        return true;
    }
    let mut at = 0;
    for part in name.split('.') {
        if at > 0 {
            if tokens.get(at).is_none_or(|t| t.token != Token::Period) {
                return false;
            }
            at += 1;
        }
        if !tokens.get(at).is_some_and(|t| is(t, part)) {
            return false;
        }
        at += 1;
    }
    at > 1
}

fn is(token: &TokenWithSpan, name: &str) -> bool {
    match &token.token {
        Token::Word(w) => fold(&Ident { value: w.value.clone(), quote_style: w.quote_style, span: token.span }) == name,
        Token::SingleQuotedString(s) => s == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_named_that_is_there() {
        let at = |statement: &str, message: &str| place_of(statement, &SpateError::invalid(message)).map(|p| p.1);
        let create = "CREATE SOURCE s WITH (connector = 'file', Pth = 'x', fault.stratgy = 1)";
        assert_eq!(at(create, "unknown option \"pth\" of connector \"file\""), Some(43));
        assert_eq!(at(create, "connector \"file\" has no option \"pth\""), Some(43));
        assert_eq!(at(create, "connector \"file\" needs \"path\""), Some(35));
        assert_eq!(at(create, "unknown option \"fault.stratgy\""), Some(54));
        assert_eq!(at(create, "nothing named"), None);
        assert_eq!(at(create, "\"other\" is not there"), None);
        assert_eq!(at("SELECT a, sum(b) FROM sum", "function sum(text) does not exist"), Some(11));
        assert_eq!(at("SELECT 1, 2 + true", "operator does not exist: bigint + boolean"), Some(13));
        assert_eq!(at("SELECT 1 + 2 + true", "operator does not exist: bigint + boolean"), None);
        assert_eq!(at("SELECT \"A\", a", "\"a\""), Some(13));
    }
}
