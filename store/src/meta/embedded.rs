//! The meta store in a file, for one process: redb, a B-tree that copies on write.
//!
//! One thread writes. All commits that wait when it looks become one transaction and share one
//! `fsync` (group commit); each still holds or fails by itself. An answer comes after the `fsync`,
//! and reads see durable state alone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::oneshot;
use parking_lot::{Condvar, Mutex, RwLock};
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::apply::{Tables, apply, check, end_lease};
use super::hub::Hub;
use super::lease::Leases;
use super::{Change, Condition, Entry, LeaseId, Listing, MetaError, MetaResult, MetaStore, Op, Revision, Watch};
use spate_engine::env::{Clock, sync_dir};

use crate::env::make_dir;

/// The format that is written; older ones are read too.
const FORMAT: u64 = 1;
/// Most requests in one transaction.
const GROUP: usize = 256;
/// Most requests that wait; more are refused at once.
const QUEUE: usize = 16 * GROUP;
/// Bytes of changes that are kept for watchers.
const HISTORY: usize = 16 << 20;
/// Bytes of the file that are kept in memory.
const CACHE: usize = 32 << 20;

const ENTRIES: TableDefinition<&str, (u64, u64, &[u8])> = TableDefinition::new("entries");
/// Leases and the keys that go with them.
const ATTACHED: TableDefinition<(u64, &str), ()> = TableDefinition::new("attached");
/// Leases and how long they last, in microseconds.
const LEASES: TableDefinition<u64, u64> = TableDefinition::new("leases");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");

const N_FORMAT: &str = "format";
const N_REVISION: &str = "revision";
const N_LEASE: &str = "lease";
/// Rises with every transaction: tells whether one was done of which no answer came.
const N_GROUP: &str = "group";

type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// A meta store in a file. Dropping it does what is waiting and closes the file.
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    what: String,
    opener: Opener,
    /// `None` after an error until it has been opened again.
    db: RwLock<Option<Database>>,
    queue: Mutex<Queue>,
    ready: Condvar,
    hub: Hub,
    leases: Mutex<Leases>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    closed: bool,
}

struct Request {
    what: What,
    reply: oneshot::Sender<MetaResult<u64>>,
}

enum What {
    Commit(Vec<Condition>, Vec<Op>),
    Grant(Duration),
    Revoke(LeaseId),
    Expire,
}

/// What a transaction has done, once it is durable.
#[derive(Default)]
struct Done {
    answers: Vec<MetaResult<u64>>,
    changes: Vec<Change>,
    started: Vec<(LeaseId, Duration)>,
    ended: BTreeSet<LeaseId>,
}

/// A transaction that may have become durable in spite of an error, and its number.
type Undecided = Box<(u64, Done)>;

fn failed(e: impl Into<redb::Error>) -> MetaError {
    use std::io::ErrorKind::{InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
    match e.into() {
        redb::Error::Io(io) => match io.kind() {
            StorageFull | QuotaExceeded => MetaError::Full,
            InvalidData | UnexpectedEof => MetaError::Corrupt(io.to_string()),
            _ => MetaError::Unavailable(io.to_string()),
        },
        redb::Error::Corrupted(why) => MetaError::Corrupt(why),
        e @ (redb::Error::TableTypeMismatch { .. } | redb::Error::UpgradeRequired(_)) => {
            MetaError::Corrupt(e.to_string())
        }
        redb::Error::DatabaseAlreadyOpen => MetaError::Locked(String::new()),
        e => MetaError::Unavailable(e.to_string()),
    }
}

impl Embedded {
    /// Opens the store in a file, making it if need be.
    ///
    /// # Errors
    /// `Locked` if another has it open, `Newer` if a newer version of Spate wrote it.
    pub fn open(file: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> MetaResult<Self> {
        let file: PathBuf = file.into();
        let io = |e: std::io::Error| failed(redb::Error::Io(e));
        let dir = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        make_dir(&dir).map_err(io)?;
        let what = file.display().to_string();
        let opener = move || Database::builder().set_cache_size(CACHE).create(&file);
        let this = Self::with_opener(what, Box::new(opener), clock)?;
        sync_dir(&dir).map_err(io)?;
        Ok(this)
    }

    fn with_opener(what: String, opener: Opener, clock: Arc<dyn Clock>) -> MetaResult<Self> {
        let db = opener().map_err(|e| match failed(e) {
            MetaError::Locked(_) => MetaError::Locked(what.clone()),
            MetaError::Corrupt(why) => MetaError::Corrupt(format!("{what}: {why}")),
            e => e,
        })?;
        let mut leases = Leases::default();
        let revision = Self::prepare(&db, &mut leases, clock.monotonic())?;
        let shared = Arc::new(Shared {
            what,
            opener,
            db: RwLock::new(Some(db)),
            queue: Mutex::default(),
            ready: Condvar::new(),
            hub: Hub::new(revision, HISTORY),
            leases: Mutex::new(leases),
            clock,
        });
        let writer = shared.clone();
        let spawned = std::thread::Builder::new().name("spate-meta".into()).spawn(move || writer.run());
        let writer = spawned.map_err(|e| MetaError::Unavailable(e.to_string()))?;
        Ok(Self { shared, writer: Some(writer) })
    }

    /// Checks the format, makes the tables, and reads the leases: each lasts its time again, since
    /// nobody could keep it alive while the store was closed.
    fn prepare(db: &Database, leases: &mut Leases, now: Duration) -> MetaResult<Revision> {
        let txn = db.begin_write().map_err(failed)?;
        let revision = {
            let mut numbers = txn.open_table(NUMBERS).map_err(failed)?;
            let found = number(&numbers, N_FORMAT)?;
            if found > FORMAT {
                return Err(MetaError::Newer { found, known: FORMAT });
            }
            if found == 0 {
                numbers.insert(N_FORMAT, FORMAT).map_err(failed)?;
            }
            for lease in txn.open_table(LEASES).map_err(failed)?.iter().map_err(failed)? {
                let (id, ttl) = lease.map_err(failed)?;
                leases.start(LeaseId(id.value()), Duration::from_micros(ttl.value()), now);
            }
            txn.open_table(ENTRIES).map_err(failed)?;
            txn.open_table(ATTACHED).map_err(failed)?;
            number(&numbers, N_REVISION)?
        };
        txn.commit().map_err(failed)?;
        Ok(revision)
    }

    async fn ask(&self, what: What) -> MetaResult<u64> {
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if queue.closed {
                return Err(MetaError::Unavailable("it is closed".into()));
            }
            if queue.waiting.len() >= QUEUE {
                return Err(MetaError::Unavailable(format!("{QUEUE} requests wait already")));
            }
            queue.waiting.push_back(Request { what, reply });
        }
        self.shared.ready.notify_one();
        answer.await.unwrap_or_else(|_| Err(MetaError::Unknown("it was closed".into())))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.ready.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been told to those who waited for it.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded({})", self.shared.what)
    }
}

fn number(numbers: &impl ReadableTable<&'static str, u64>, name: &'static str) -> MetaResult<u64> {
    Ok(numbers.get(name).map_err(failed)?.map_or(0, |n| n.value()))
}

/// Ends the queue with its writer, however that ends: nobody shall wait for an answer in vain.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
    }
}

impl Shared {
    fn run(&self) {
        let _close = Close(self);
        loop {
            let group: Vec<Request> = {
                let mut queue = self.queue.lock();
                while queue.waiting.is_empty() && !queue.closed {
                    self.ready.wait(&mut queue);
                }
                let n = queue.waiting.len().min(GROUP);
                queue.waiting.drain(..n).collect()
            };
            if group.is_empty() {
                return;
            }
            match self.write(&group) {
                Ok(done) => self.finish(group, done),
                Err(e) => group.into_iter().for_each(|r| drop(r.reply.send(Err(e.clone())))),
            }
        }
    }

    /// Tells all who are to know of a durable transaction.
    fn finish(&self, group: Vec<Request>, done: Done) {
        {
            let mut leases = self.leases.lock();
            let now = self.clock.monotonic();
            done.started.iter().for_each(|(lease, ttl)| leases.start(*lease, *ttl, now));
            done.ended.iter().for_each(|lease| leases.end(*lease));
        }
        self.hub.publish(done.changes);
        // Who no longer waits for an answer does not need one.
        group.into_iter().zip(done.answers).for_each(|(r, answer)| drop(r.reply.send(answer)));
    }

    fn write(&self, group: &[Request]) -> MetaResult<Done> {
        if self.db.read().is_none() {
            self.reopen()?;
        }
        let (failure, undecided) = match self.transact(group) {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        // After an error redb wants to be opened again. That shows what became of the transaction.
        *self.db.write() = None;
        let reopened = self.reopen();
        match (undecided, reopened) {
            (Some(it), Ok(on_disk)) if on_disk == it.0 => {
                let mut done = it.1;
                // It can be read, and so is in force; but whether it is durable nobody knows, since
                // a kernel forgets what it could not write.
                done.answers.iter_mut().for_each(|a| *a = Err(MetaError::Unknown(failure.to_string())));
                Ok(done)
            }
            (Some(_), Err(e)) => Err(MetaError::Unknown(format!("{failure}; {e}"))),
            _ => Err(failure),
        }
    }

    /// Opens the file again: the number of its last transaction.
    fn reopen(&self) -> MetaResult<u64> {
        let mut slot = self.db.write();
        let db = (self.opener)().map_err(failed)?;
        let txn = db.begin_read().map_err(failed)?;
        let group = number(&txn.open_table(NUMBERS).map_err(failed)?, N_GROUP)?;
        drop(txn);
        *slot = Some(db);
        Ok(group)
    }

    /// Does a group as one transaction. If it may have been done in spite of an error, its number
    /// comes with it.
    fn transact(&self, group: &[Request]) -> Result<Done, (MetaError, Option<Undecided>)> {
        let early = |e: MetaError| (e, None);
        let db = self.db.read();
        let db = db.as_ref().ok_or_else(|| early(MetaError::Unavailable("it is closed".into())))?;
        let mut txn = db.begin_write().map_err(|e| early(failed(e)))?;
        txn.set_durability(Durability::Immediate).map_err(|e| early(MetaError::Invalid(e.to_string())))?;
        match self.fill(&txn, group).map_err(early)? {
            (done, None) => {
                txn.abort().map_err(|e| early(failed(e)))?;
                Ok(done)
            }
            (done, Some(number)) => match txn.commit() {
                Ok(()) => Ok(done),
                Err(e) => Err((failed(e), Some(Box::new((number, done))))),
            },
        }
    }

    /// Does a group within a transaction, and gives its number if there is anything to make durable.
    fn fill(&self, txn: &redb::WriteTransaction, group: &[Request]) -> MetaResult<(Done, Option<u64>)> {
        let leases = self.leases.lock();
        let now = self.clock.monotonic();
        let mut numbers = txn.open_table(NUMBERS).map_err(failed)?;
        let mut kept = txn.open_table(LEASES).map_err(failed)?;
        let mut tables = Txn {
            entries: txn.open_table(ENTRIES).map_err(failed)?,
            attached: txn.open_table(ATTACHED).map_err(failed)?,
        };
        let mut revision = number(&numbers, N_REVISION)?;
        let mut done = Done::default();
        let mut end = |done: &mut Done, tables: &mut Txn, revision: &mut Revision, lease: LeaseId| -> MetaResult<()> {
            kept.remove(lease.0).map_err(failed)?;
            done.ended.insert(lease);
            let changes = end_lease(tables, lease, *revision + 1)?;
            *revision += u64::from(!changes.is_empty());
            done.changes.extend(changes);
            Ok(())
        };
        for lease in leases.due(now) {
            end(&mut done, &mut tables, &mut revision, lease)?;
        }
        let mut granted = 0;
        for request in group {
            let answer = match &request.what {
                What::Commit(conditions, ops) => {
                    let is_alive = |l: LeaseId| leases.is_alive(l, now) && !done.ended.contains(&l);
                    match apply(&mut tables, conditions, ops, revision + 1, is_alive) {
                        Ok(changes) => {
                            revision += u64::from(!changes.is_empty());
                            done.changes.extend(changes);
                            Ok(revision)
                        }
                        Err(e @ (MetaError::Conflict(_) | MetaError::LeaseLost)) => Err(e),
                        Err(e) => return Err(e),
                    }
                }
                What::Grant(ttl) => {
                    granted += 1;
                    let id = number(&numbers, N_LEASE)? + granted;
                    done.started.push((LeaseId(id), *ttl));
                    Ok(id)
                }
                What::Revoke(lease) => {
                    end(&mut done, &mut tables, &mut revision, *lease)?;
                    Ok(revision)
                }
                What::Expire => Ok(revision),
            };
            done.answers.push(answer);
        }
        drop(leases);
        for (lease, ttl) in &done.started {
            let ttl = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
            kept.insert(lease.0, ttl).map_err(failed)?;
        }
        if done.changes.is_empty() && done.started.is_empty() && done.ended.is_empty() {
            return Ok((done, None));
        }
        let (lease, group) = (number(&numbers, N_LEASE)? + granted, number(&numbers, N_GROUP)? + 1);
        for (name, n) in [(N_REVISION, revision), (N_LEASE, lease), (N_GROUP, group)] {
            numbers.insert(name, n).map_err(failed)?;
        }
        Ok((done, Some(group)))
    }

    fn read<T>(&self, act: impl FnOnce(&redb::ReadTransaction) -> MetaResult<T>) -> MetaResult<T> {
        let db = self.db.read();
        let db = db.as_ref().ok_or_else(|| MetaError::Unavailable("it is closed after an error".into()))?;
        act(&db.begin_read().map_err(failed)?)
    }
}

/// Tables within a transaction.
struct Txn<'a> {
    entries: Table<'a, &'static str, (u64, u64, &'static [u8])>,
    attached: Table<'a, (u64, &'static str), ()>,
}

/// How a lease is written: 0 is none.
fn lease_of(n: u64) -> Option<LeaseId> {
    (n > 0).then_some(LeaseId(n))
}

impl Tables for Txn<'_> {
    fn find(&self, key: &str) -> MetaResult<Option<(Revision, Option<LeaseId>)>> {
        let found = self.entries.get(key).map_err(failed)?;
        Ok(found.map(|e| (e.value().0, lease_of(e.value().1))))
    }

    fn write(&mut self, e: &Entry) -> MetaResult<()> {
        let value = (e.version, e.lease.map_or(0, |l| l.0), &e.value[..]);
        self.entries.insert(e.key.as_str(), value).map_err(failed)?;
        Ok(())
    }

    fn remove(&mut self, key: &str) -> MetaResult<()> {
        self.entries.remove(key).map_err(failed)?;
        Ok(())
    }

    fn keys(&self, from: &str, to: &str) -> MetaResult<Vec<String>> {
        let mut keys = Vec::new();
        for e in self.entries.range(from..).map_err(failed)? {
            let key = e.map_err(failed)?.0;
            if !to.is_empty() && key.value() >= to {
                break;
            }
            keys.push(key.value().to_owned());
        }
        Ok(keys)
    }

    fn attach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()> {
        self.attached.insert((lease.0, key), ()).map_err(failed)?;
        Ok(())
    }

    fn detach(&mut self, lease: LeaseId, key: &str) -> MetaResult<()> {
        self.attached.remove((lease.0, key)).map_err(failed)?;
        Ok(())
    }

    fn attached(&self, lease: LeaseId) -> MetaResult<Vec<String>> {
        let range = self.attached.range((lease.0, "")..(lease.0 + 1, "")).map_err(failed)?;
        range.map(|a| Ok(a.map_err(failed)?.0.value().1.to_owned())).collect()
    }
}

fn entry(key: &str, (version, lease, value): (u64, u64, &[u8])) -> Entry {
    Entry { key: key.to_owned(), value: Bytes::copy_from_slice(value), version, lease: lease_of(lease) }
}

#[async_trait]
impl MetaStore for Embedded {
    async fn get(&self, key: &str) -> MetaResult<Option<Entry>> {
        self.shared.read(|txn| {
            let found = txn.open_table(ENTRIES).map_err(failed)?.get(key).map_err(failed)?;
            Ok(found.map(|e| entry(key, e.value())))
        })
    }

    async fn range(&self, from: &str, to: &str) -> MetaResult<Listing> {
        self.shared.read(|txn| {
            let mut entries = Vec::new();
            for e in txn.open_table(ENTRIES).map_err(failed)?.range(from..).map_err(failed)? {
                let (key, value) = e.map_err(failed)?;
                if !to.is_empty() && key.value() >= to {
                    break;
                }
                entries.push(entry(key.value(), value.value()));
            }
            let revision = number(&txn.open_table(NUMBERS).map_err(failed)?, N_REVISION)?;
            Ok(Listing { revision, entries })
        })
    }

    async fn commit(&self, conditions: &[Condition], ops: &[Op]) -> MetaResult<Revision> {
        check(conditions, ops)?;
        self.ask(What::Commit(conditions.to_vec(), ops.to_vec())).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> MetaResult<Watch> {
        self.shared.hub.watch(prefix, after)
    }

    async fn grant(&self, ttl: Duration) -> MetaResult<LeaseId> {
        self.ask(What::Grant(ttl)).await.map(LeaseId)
    }

    async fn keep_alive(&self, lease: LeaseId) -> MetaResult<()> {
        self.shared.leases.lock().keep_alive(lease, self.shared.clock.monotonic())
    }

    async fn revoke(&self, lease: LeaseId) -> MetaResult<()> {
        self.ask(What::Revoke(lease)).await.map(|_| ())
    }

    async fn expire(&self) -> MetaResult<()> {
        if self.shared.leases.lock().due(self.shared.clock.monotonic()).is_empty() {
            return Ok(());
        }
        self.ask(What::Expire).await.map(|_| ())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "embedded_tests.rs"]
mod tests;
