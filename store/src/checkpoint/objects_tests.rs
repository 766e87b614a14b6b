//! Every error of an object store comes out as what it is, and only what may pass is tried again.

use std::io;

use async_trait::async_trait;
use futures::executor::block_on;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutOptions, PutResult, Result,
};
use parking_lot::Mutex;

use super::*;
use crate::checkpoint::names::PartName;
use crate::env::ObjectDir;
use spate_engine::task::TaskId;

/// What is to go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::checkpoint) enum Wrong {
    Nothing,
    /// Not done, with an error of this kind.
    Io(io::ErrorKind),
    /// Done, but the answer is an error.
    Lost,
    /// Done, with a bit of what is read turned.
    Damaged,
}

type Fault = Box<dyn FnMut(&str, &Path) -> Wrong + Send>;

/// A store in memory that does wrong when asked to.
pub(in crate::checkpoint) struct Faulty {
    pub inner: InMemory,
    fault: Mutex<Fault>,
}

impl Faulty {
    pub fn new(fault: impl FnMut(&str, &Path) -> Wrong + Send + 'static) -> Arc<Self> {
        Arc::new(Self { inner: InMemory::new(), fault: Mutex::new(Box::new(fault)) })
    }

    fn wrong(&self, call: &str, at: &Path) -> Wrong {
        (self.fault.lock())(call, at)
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

fn error(kind: io::ErrorKind) -> Error {
    // Deep inside, as it comes from a client of a network.
    let inner = io::Error::new(kind, "injected");
    Error::Generic { store: "faulty", source: Box::new(Error::Generic { store: "inner", source: Box::new(inner) }) }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.wrong("put", at) {
            Wrong::Io(kind) => Err(error(kind)),
            Wrong::Lost => {
                self.inner.put_opts(at, payload, options).await?;
                Err(error(io::ErrorKind::TimedOut))
            }
            _ => self.inner.put_opts(at, payload, options).await,
        }
    }

    async fn put_multipart_opts(&self, at: &Path, o: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, o).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        match self.wrong("get", at) {
            Wrong::Io(kind) => Err(error(kind)),
            Wrong::Damaged => {
                let got = self.inner.get_opts(at, options).await?;
                let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
                let mut bytes = got.bytes().await?.to_vec();
                bytes[0] ^= 1;
                let payload = GetResultPayload::Stream(futures::stream::iter([Ok(bytes.into())]).boxed());
                Ok(GetResult { payload, meta, range, attributes })
            }
            _ => self.inner.get_opts(at, options).await,
        }
    }

    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.wrong("delete", &Path::default()) {
            Wrong::Io(kind) => futures::stream::once(async move { Err(error(kind)) }).boxed(),
            _ => self.inner.delete_stream(at),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let all = self.inner.list(prefix);
        match self.wrong("list", prefix.unwrap_or(&Path::default())) {
            // It fails in the middle.
            Wrong::Io(kind) => all.take(1).chain(futures::stream::once(async move { Err(error(kind)) })).boxed(),
            _ => all,
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Notes how long it was to sleep, and does not.
#[derive(Debug, Default)]
pub(in crate::checkpoint) struct NoSleep(pub Mutex<Vec<Duration>>);

impl Sleep for NoSleep {
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.0.lock().push(time);
        Box::pin(async {})
    }
}

pub(in crate::checkpoint) fn over(store: Arc<dyn ObjectStore>) -> SnapshotObjects {
    let retries = Retries { attempts: 4, ..Retries::default() };
    SnapshotObjects::new(store, Path::from("root"), retries, Arc::new(NoSleep::default()))
}

fn name(epoch: u64) -> ObjectName {
    let task = TaskId { job: 1, fragment: 2, index: 3 };
    let part = PartName { incarnation: 1, task, generation: 1, epoch, merged: false, op: 0, table: 0, part: 0 };
    ObjectName::Part(part)
}

fn pieces(text: &'static str) -> Vec<Bytes> {
    text.as_bytes().chunks(4).map(Bytes::from_static).collect()
}

/// A store that does wrong on the first `n` calls of a kind.
fn failing(call: &'static str, n: usize, wrong: Wrong) -> SnapshotObjects {
    let mut left = n;
    over(Faulty::new(move |c, _| {
        if c == call && left > 0 {
            left -= 1;
            return wrong;
        }
        Wrong::Nothing
    }))
}

#[test]
fn objects_come_back_and_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    for store in [Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, Arc::new(ObjectDir::open(dir.path()).unwrap())] {
        let o = over(store.clone());
        assert_eq!(block_on(o.list(None)).unwrap(), []);
        let a = block_on(o.put(name(1), &pieces("hello there"))).unwrap();
        let b = block_on(o.put(name(2), &pieces("other"))).unwrap();
        assert_eq!(block_on(o.get(&a)).unwrap(), "hello there");
        assert_eq!(block_on(o.get(&b)).unwrap(), "other");
        block_on(store.put(&Path::from("root/i1/notes.txt"), "mine".into())).unwrap();
        assert_eq!(block_on(o.list(None)).unwrap(), [(name(1), 11), (name(2), 5)]);
        assert_eq!(block_on(o.list(Some((1, 1)))).unwrap().len(), 2);
        assert_eq!(block_on(o.list(Some((1, 2)))).unwrap(), []);
        block_on(o.delete([name(1), name(7)])).unwrap();
        assert_eq!(block_on(o.list(None)).unwrap(), [(name(2), 5)]);
        assert!(matches!(block_on(o.get(&a)), Err(StoreError::NotFound { .. })));
    }
}

#[test]
fn an_object_is_never_replaced() {
    let o = over(Arc::new(InMemory::new()));
    let a = block_on(o.put(name(1), &pieces("hello there"))).unwrap();
    assert_eq!(block_on(o.put(name(1), &pieces("hello there"))), Ok(a));
    for other in ["hello thera", "hello"] {
        let e = block_on(o.put(name(1), &pieces(other))).unwrap_err();
        assert!(matches!(e, StoreError::Conflict { .. }), "{e}");
    }
    assert_eq!(block_on(o.get(&a)).unwrap(), "hello there");
}

#[test]
fn a_put_whose_answer_is_lost_succeeds() {
    let o = failing("put", 2, Wrong::Lost);
    let a = block_on(o.put(name(1), &pieces("hello there"))).unwrap();
    assert_eq!(block_on(o.get(&a)).unwrap(), "hello there");
}

#[test]
fn what_may_pass_is_tried_again_ever_later_and_not_for_ever() {
    let timeout = Wrong::Io(io::ErrorKind::TimedOut);
    for n in 0..3 {
        let a = block_on(failing("put", n, timeout).put(name(1), &pieces("x"))).unwrap();
        let o = failing("get", n, timeout);
        block_on(o.put(name(1), &pieces("x"))).unwrap();
        assert_eq!(block_on(o.get(&a)).unwrap(), "x");
        assert_eq!(block_on(failing("list", n, timeout).list(None)), Ok(vec![]));
    }
    let sleep = Arc::new(NoSleep::default());
    let retries = Retries { attempts: 6, first: Duration::from_millis(10), longest: Duration::from_millis(50) };
    let down = Faulty::new(move |_, _| timeout);
    let o = SnapshotObjects::new(down, Path::from("r"), retries, sleep.clone());
    assert!(matches!(block_on(o.put(name(1), &pieces("x"))), Err(StoreError::Unavailable { .. })));
    assert_eq!(std::mem::take(&mut *sleep.0.lock()), [10, 20, 40, 50, 50].map(Duration::from_millis));
    let object = ObjectRef { name: name(1), size: 1, checksum: 0 };
    // Never "not found".
    assert!(matches!(block_on(o.get(&object)), Err(StoreError::Unavailable { .. })));
    assert!(matches!(block_on(o.list(None)), Err(StoreError::Unavailable { .. })));
    assert!(matches!(block_on(o.delete([name(1)])), Err(StoreError::Unavailable { .. })));
}

#[test]
fn a_full_disk_is_told_at_once() {
    let o = failing("put", 1, Wrong::Io(io::ErrorKind::StorageFull));
    let e = block_on(o.put(name(1), &pieces("x"))).unwrap_err();
    assert_eq!(e, StoreError::Full { what: name(1).to_string() });
    let e = spate_engine::types::SpateError::from(e);
    assert!(e.hint().unwrap().starts_with("free space"), "{e}");
}

#[test]
fn bytes_damaged_on_the_way_are_read_again_and_others_told() {
    let o = failing("get", 1, Wrong::Damaged);
    let a = block_on(o.put(name(1), &pieces("hello there"))).unwrap();
    assert_eq!(block_on(o.get(&a)).unwrap(), "hello there");
    for n in [2, 99] {
        let o = failing("get", n, Wrong::Damaged);
        let a = block_on(o.put(name(1), &pieces("hello there"))).unwrap();
        assert!(matches!(block_on(o.get(&a)), Err(StoreError::Corrupt { .. })));
    }
    let short = ObjectRef { size: 4, ..a };
    assert!(matches!(block_on(o.get(&short)), Err(StoreError::Corrupt { .. })));
}
