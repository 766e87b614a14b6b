//! Sessions of clients. A session belongs to a connection, unless the client names it: by the
//! cookie that every first answer sets, or by a bearer token, such as a handshake gives out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::HeaderMap;
use parking_lot::Mutex;
use spate_engine::env::random_id;
use spate_engine::types::{ErrorKind, Result, SpateError};

use super::Limits;
use super::expiring::Expiring;
use super::prepared::Prepared;
use crate::{Engine, Session};

/// The cookie that names a session.
pub const COOKIE: &str = "spate_session";

/// Longest token that may name a session.
const MAX_TOKEN: usize = 256;

/// A session of a client.
pub struct ClientSession {
    /// Its name, which nobody can guess.
    pub id: String,
    /// One statement at a time.
    pub session: tokio::sync::Mutex<Session>,
    /// Its prepared statements.
    pub prepared: Mutex<Expiring<Arc<Prepared>>>,
    /// Whether a cookie or token has named it: then it does not end with a connection.
    named: AtomicBool,
}

/// The session of a request.
pub struct Found {
    /// The session.
    pub session: Arc<ClientSession>,
    /// Whether the client must yet be told its name.
    pub cookie: bool,
}

struct Inner {
    /// All sessions, by their names.
    by_name: Expiring<Arc<ClientSession>>,
    /// Names of the sessions of connections.
    by_connection: BTreeMap<u64, String>,
}

/// All sessions.
pub struct Sessions {
    engine: Arc<Engine>,
    limits: Limits,
    inner: Mutex<Inner>,
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all("cookie").into_iter().filter_map(|v| v.to_str().ok());
    all.flat_map(|v| v.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(n, _)| *n == name)
        .map(|(_, v)| v.trim_matches('"'))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get("authorization")?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl Sessions {
    /// None yet.
    pub fn new(engine: Arc<Engine>, limits: Limits) -> Self {
        let inner = Inner { by_name: Expiring::new(limits.sessions), by_connection: BTreeMap::new() };
        Self { engine, limits, inner: Mutex::new(inner) }
    }

    /// The session that a request belongs to; made if it is the first.
    pub fn of(&self, headers: &HeaderMap, connection: u64) -> Result<Found> {
        let now = self.engine.clock.monotonic();
        let mut inner = self.inner.lock();
        if let Some(name) = cookie(headers, COOKIE)
            && let Some(session) = inner.by_name.touch(name, now)
        {
            session.named.store(true, Ordering::Relaxed);
            return Ok(Found { session: session.clone(), cookie: false });
        }
        if let Some(token) = bearer(headers) {
            if token.is_empty() || token.len() > MAX_TOKEN {
                return Err(SpateError::invalid(format!("a bearer token has 1 to {MAX_TOKEN} characters")));
            }
            if let Some(session) = inner.by_name.touch(token, now) {
                session.named.store(true, Ordering::Relaxed);
                return Ok(Found { session: session.clone(), cookie: false });
            }
            let session = self.add(&mut inner, token.to_owned(), true, now)?;
            return Ok(Found { session, cookie: false });
        }
        let Inner { by_name, by_connection } = &mut *inner;
        if let Some(session) = by_connection.get(&connection).and_then(|name| by_name.touch(name, now)) {
            return Ok(Found { session: session.clone(), cookie: true });
        }
        let session = self.add(&mut inner, random_id()?, false, now)?;
        inner.by_connection.insert(connection, session.id.clone());
        Ok(Found { session, cookie: true })
    }

    fn add(&self, inner: &mut Inner, id: String, named: bool, now: Duration) -> Result<Arc<ClientSession>> {
        let session = Arc::new(ClientSession {
            id: id.clone(),
            session: tokio::sync::Mutex::new(self.engine.session()),
            prepared: Mutex::new(Expiring::new(self.limits.prepared)),
            named: AtomicBool::new(named),
        });
        if inner.by_name.insert(id, now, session.clone()).is_err() {
            return Err(SpateError::new(
                ErrorKind::Limit,
                format!("there are {} sessions, which is the most that the server takes", self.limits.sessions),
            )
            .with_hint("close some, or start the server with a higher --max-sessions"));
        }
        Ok(session)
    }

    /// A new session for whoever knows its name.
    pub fn open(&self) -> Result<Arc<ClientSession>> {
        self.add(&mut self.inner.lock(), random_id()?, true, self.engine.clock.monotonic())
    }

    /// Ends a session.
    pub fn close(&self, session: &ClientSession) {
        let mut inner = self.inner.lock();
        inner.by_name.remove(&session.id);
        inner.by_connection.retain(|_, name| *name != session.id);
    }

    /// Ends the session of a connection that is gone, unless it goes by a name.
    pub fn disconnected(&self, connection: u64) {
        let mut inner = self.inner.lock();
        let Some(name) = inner.by_connection.remove(&connection) else { return };
        inner.by_name.take(|_, s| s.id == name && !s.named.load(Ordering::Relaxed));
    }

    /// Ends named sessions that nobody has used for long. One that is in use stays.
    pub fn sweep(&self) {
        let Some(since) = self.engine.clock.monotonic().checked_sub(self.limits.session_idle) else { return };
        let gone = {
            let mut inner = self.inner.lock();
            inner.by_name.expire(since, |s| s.named.load(Ordering::Relaxed) && Arc::strong_count(s) == 1)
        };
        drop(gone);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inner.lock().by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sessions_belong_to_connections_or_to_names() {
        let engine = Engine::open(EngineConfig { threads: 1, ..EngineConfig::default() }).unwrap();
        let sessions = Sessions::new(engine.clone(), Limits { sessions: 2, ..Limits::default() });
        let none = HeaderMap::new();
        let first = sessions.of(&none, 1).unwrap();
        assert!(first.cookie);
        assert_eq!(sessions.of(&none, 1).unwrap().session.id, first.session.id);
        // A cookie names the session from any connection, and keeps it.
        let named = headers("cookie", &format!("a=b; {COOKIE}={}", first.session.id));
        let again = sessions.of(&named, 7).unwrap();
        assert!(!again.cookie && again.session.id == first.session.id);
        sessions.disconnected(1);
        assert_eq!(sessions.of(&named, 8).unwrap().session.id, first.session.id);
        // So does a token; a session too many is refused.
        let token = headers("authorization", "Bearer mine");
        assert_eq!(sessions.of(&token, 9).unwrap().session.id, "mine");
        assert_eq!(sessions.of(&none, 9).err().unwrap().kind(), ErrorKind::Limit);
        sessions.close(&again.session);
        assert_eq!(sessions.count(), 1);
        // Without a name it goes with the connection.
        sessions.of(&none, 9).unwrap();
        sessions.disconnected(9);
        assert_eq!(sessions.count(), 1);
        engine.shutdown();
    }
}
