//! Objects in a directory: put once, listed in order, nothing left half written.

use std::io::BufRead;
use std::process::{Command, Stdio};

use futures::TryStreamExt;
use futures::executor::block_on;
use object_store::ObjectStoreExt;

use super::*;

fn put(d: &ObjectDir, at: &str, bytes: &'static [u8]) -> Result<()> {
    let payload = PutPayload::from_iter(bytes.chunks(3).map(Bytes::from_static));
    block_on(d.put_opts(&Path::from(at), payload, PutMode::Create.into())).map(|_| ())
}

fn get(d: &ObjectDir, at: &str) -> Result<Bytes> {
    block_on(async { d.get(&Path::from(at)).await?.bytes().await })
}

fn names(d: &ObjectDir, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let all: Vec<ObjectMeta> = block_on(d.list(prefix.as_ref()).try_collect()).unwrap();
    all.into_iter().map(|m| m.location.to_string()).collect()
}

#[test]
fn an_object_is_put_once_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let d = ObjectDir::open(dir.path().join("a/b")).unwrap();
    put(&d, "x/1/s", b"hello there").unwrap();
    assert!(matches!(put(&d, "x/1/s", b"other"), Err(Error::AlreadyExists { .. })));
    assert_eq!(get(&d, "x/1/s").unwrap(), "hello there");
    assert_eq!(block_on(d.get_range(&Path::from("x/1/s"), 6..9)).unwrap(), "the");
    assert_eq!(block_on(d.head(&Path::from("x/1/s"))).unwrap().size, 11);
    assert!(matches!(get(&d, "x/1/t"), Err(Error::NotFound { .. })));
    block_on(d.put(&Path::from("x/1/s"), PutPayload::from_static(b"new"))).unwrap();
    assert_eq!(get(&d, "x/1/s").unwrap(), "new");
    block_on(d.copy(&Path::from("x/1/s"), &Path::from("y/s"))).unwrap();
    assert_eq!(names(&d, None), ["x/1/s", "y/s"]);
    assert!(put(&d, ".tmp/0/7", b"x").is_err());
}

#[test]
fn listing_is_in_order_and_below_a_prefix_alone() {
    let dir = tempfile::tempdir().unwrap();
    let d = ObjectDir::open(dir.path()).unwrap();
    for at in ["b/2", "a/1/x", "b/1", "bb/1", "a/0/y", "top"] {
        put(&d, at, b"x").unwrap();
    }
    assert_eq!(names(&d, None), ["a/0/y", "a/1/x", "b/1", "b/2", "bb/1", "top"]);
    assert_eq!(names(&d, Some("b")), ["b/1", "b/2"]);
    assert_eq!(names(&d, Some("c")), [""; 0]);
    let level = block_on(d.list_with_delimiter(None)).unwrap();
    assert_eq!(level.common_prefixes, ["a", "b", "bb"].map(Path::from));
    assert_eq!(level.objects.len(), 1);
}

#[test]
fn several_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (d, other) = (ObjectDir::open(dir.path()).unwrap(), ObjectDir::open(dir.path()).unwrap());
    put(&d, "x/1/s", b"1").unwrap();
    put(&other, "x/1/t", b"1").unwrap();
    assert!(matches!(put(&other, "x/1/s", b"2"), Err(Error::AlreadyExists { .. })));
    block_on(other.delete(&Path::from("x/1/s"))).unwrap();
    put(&d, "x/1/s", b"2").unwrap();
    assert_eq!(get(&other, "x/1/s").unwrap(), "2");
    assert!(matches!(block_on(d.delete(&Path::from("x/1/u"))), Err(Error::NotFound { .. })));
}

#[test]
fn of_many_that_put_one_object_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<ObjectDir> = (0..4).map(|_| ObjectDir::open(dir.path()).unwrap()).collect();
    for round in 0..20 {
        let at = format!("x/{round}");
        let done: usize = std::thread::scope(|s| {
            let puts: Vec<_> = all.iter().map(|d| s.spawn(|| put(d, &at, b"hello").is_ok())).collect();
            puts.into_iter().map(|p| usize::from(p.join().unwrap())).sum()
        });
        assert_eq!(done, 1);
        assert_eq!(get(&all[0], &at).unwrap(), "hello");
    }
}

#[test]
fn puts_and_deletes_of_one_directory_get_along() {
    let dir = tempfile::tempdir().unwrap();
    let d = ObjectDir::open(dir.path()).unwrap();
    std::thread::scope(|s| {
        for t in 0..4 {
            let d = &d;
            s.spawn(move || {
                for i in 0..20 {
                    let at = format!("x/{i}/{t}");
                    put(d, &at, b"x").unwrap();
                    block_on(d.delete(&Path::from(at))).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&d, None), [""; 0]);
}

#[test]
fn leftovers_of_dead_processes_alone_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let a = ObjectDir::open(dir.path()).unwrap();
    let half = a.0.aside.join("17");
    std::fs::write(&half, "half").unwrap();
    let b = ObjectDir::open(dir.path()).unwrap();
    assert!(half.exists() && a.0.aside != b.0.aside, "it is still being written");
    drop((a, b));
    let c = ObjectDir::open(dir.path()).unwrap();
    assert!(!half.exists());
    put(&c, "x", b"1").unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join(ASIDE)).unwrap().count(), 2);
    let left: Vec<_> = std::fs::read_dir(&c.0.aside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [LOCK]);
}

/// Run in a child process: puts objects until it is killed, and says which are there.
#[test]
fn child_that_puts() {
    let Ok(dir) = std::env::var("SPATE_OBJECTS_CHILD") else { return };
    let d = ObjectDir::open(dir).unwrap();
    for n in names(&d, None).len().. {
        let payload = PutPayload::from(vec![n as u8; n * 5000 % 300_000]);
        let at = Path::from(format!("j{}/{n:06}", n % 7));
        block_on(d.put_opts(&at, payload, PutMode::Create.into())).unwrap();
        println!("acknowledged {at}");
    }
}

#[test]
fn objects_are_there_as_a_whole_or_not_at_all_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "env::object_dir::tests::child_that_puts", "--nocapture"])
            .env("SPATE_OBJECTS_CHILD", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut note = |line: String| {
            let at = line.rsplit_once("acknowledged ").map(|(_, at)| at.to_owned());
            let counts = at.is_some();
            acknowledged.extend(at);
            counts
        };
        let mut wanted = 5 + round;
        while wanted > 0 {
            wanted -= usize::from(note(lines.next().expect("the child ended").unwrap()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(std::result::Result::ok) {
            note(line);
        }
        let d = ObjectDir::open(dir.path()).unwrap();
        let there = names(&d, None);
        assert!(acknowledged.iter().all(|at| there.contains(at)));
        for at in &there {
            let n: usize = at.rsplit_once('/').unwrap().1.parse().unwrap();
            assert_eq!(get(&d, at).unwrap(), vec![n as u8; n * 5000 % 300_000]);
        }
        assert_eq!(std::fs::read_dir(&d.0.aside).unwrap().count(), 1, "nothing half written is left");
    }
}
