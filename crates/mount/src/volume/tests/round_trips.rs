//! The round trips of each call, as `docs/mount.md` promises them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use frevo_client::internal::{Dial, Dialing};
use frevo_client::{Client, Credentials, Options, ServerName};
use frevo_net::transport::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::*;
use crate::volume::Changes;

/// The time for which answers are held back, so that requests that leave together count as one trip.
/// They are held back in steps: on a busy machine all tasks have several turns in it, too.
const HELD: Duration = Duration::from_millis(25);
const STEPS: u32 = 5;

/// The requests and answers that have passed through a connection.
#[derive(Debug, Default)]
struct Passed {
    trips: AtomicUsize,
    /// Bytes in both directions.
    bytes: AtomicUsize,
    /// True while no answer is outstanding that a trip waits for.
    is_answered: AtomicBool,
}

impl Passed {
    /// Counts a trip if these bytes of requests come after an answer.
    fn requests(&self, count: usize) {
        self.bytes.fetch_add(count, Ordering::SeqCst);
        let is_next = self.is_answered.swap(false, Ordering::SeqCst);
        self.trips.fetch_add(usize::from(is_next), Ordering::SeqCst);
    }

    fn answers(&self, count: usize) {
        self.bytes.fetch_add(count, Ordering::SeqCst);
        self.is_answered.store(true, Ordering::SeqCst);
    }
}

/// Connections that count round trips: requests after an answer.
#[derive(Debug)]
struct Counter {
    server: SocketAddr,
    passed: Arc<Passed>,
}

impl Dial for Counter {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let ours = TcpStream::connect(listener.local_addr()?).await?;
            let (near, _) = listener.accept().await?;
            let far = TcpStream::connect(self.server).await?;
            for stream in [&near, &far] {
                stream.set_nodelay(true)?;
            }
            tokio::spawn(count(near, far, Arc::clone(&self.passed)));
            Ok(Stream::Tcp(ours))
        })
    }
}

/// Passes bytes on, and counts a trip for requests that come after an answer.
async fn count(near: TcpStream, far: TcpStream, passed: Arc<Passed>) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        tokio::select! {
            biased;
            _ = near.readable() => match near.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    passed.requests(count);
                    write(&far, &buffer[..count]).await;
                }
                Err(_) => {}
            },
            _ = far.readable() => {
                for _ in 0..STEPS {
                    sleep(HELD / STEPS).await;
                }
                // Requests sent before an answer has arrived belong to the same round trip and are
                // not counted again.
                while let Ok(count @ 1..) = near.try_read(&mut buffer) {
                    passed.requests(count);
                    write(&far, &buffer[..count]).await;
                }
                match far.try_read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => {
                        passed.answers(count);
                        write(&near, &buffer[..count]).await;
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

async fn write(to: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        to.writable().await.unwrap();
        if let Ok(count) = to.try_write(bytes) {
            bytes = &bytes[count..];
        }
    }
}

/// A mount whose round trips are counted.
struct Counted {
    volume: Arc<Volume>,
    passed: Arc<Passed>,
    rows: Vec<(&'static str, usize)>,
}

impl Counted {
    async fn new(world: &World, posix: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let passed = Arc::new(Passed { is_answered: true.into(), ..Passed::default() });
        let server = listener.local_addr().unwrap();
        let dial = Counter { server, passed: Arc::clone(&passed) };
        let embedded = world.embedded.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let served = embedded.serve_connection(Stream::Tcp(stream)).unwrap();
                tokio::task::spawn_local(served);
            }
        });
        let options = Options::new().posix(posix).channels(1);
        let client = Client::with_dialer(options, Arc::new(dial));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("frevo"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        assert_eq!(share.use_posix().await.unwrap(), posix);
        let volume = Volume::new(share, "", Settings::of(0, 0));
        Self { volume, passed, rows: Vec::new() }
    }

    /// Counts the round trips that a program waits for.
    async fn row<T>(&mut self, name: &'static str, work: impl AsyncFnOnce(&Volume) -> T) -> T {
        self.until_quiet().await;
        let before = self.passed.trips.load(Ordering::SeqCst);
        let done = work(&self.volume).await;
        self.rows.push((name, self.passed.trips.load(Ordering::SeqCst) - before));
        done
    }

    /// Waits until all background requests are finished, so that they are not counted for a row.
    async fn until_quiet(&self) {
        let (mut looks, mut before) = (0, 0);
        while looks < 8 {
            sleep(HELD).await;
            let bytes = self.passed.bytes.load(Ordering::SeqCst);
            let is_quiet = bytes == before && self.passed.is_answered.load(Ordering::SeqCst);
            (looks, before) = (if is_quiet { looks + 1 } else { 0 }, bytes);
        }
    }

    /// Makes the mount forget what it has read lately, as after some time.
    async fn forget(&self) {
        for node in self.volume.nodes.all() {
            self.volume.let_go(&node).await;
            node.directory.changed(None);
            node.invalidate();
        }
        sleep(2 * HELD).await;
    }
}

impl Volume {
    async fn number_of(&self, parent: u64, file: &str) -> u64 {
        self.lookup(parent, name(file)).await.unwrap().found().attr.ino.0
    }

    /// Reads a small file, as `cat` does.
    async fn read_all(&self, id: u64) {
        let handle = self.open(id, libc::O_RDONLY).await.unwrap();
        assert_eq!(&*self.read(handle, 0, 131_072).await.unwrap(), b"some data");
        assert_eq!(self.read(handle, 9, 131_072).await.unwrap().len(), 0);
        self.close(handle).await;
    }

    /// Makes a small file and returns after close(2), as `cp` does.
    async fn fill_in(&self, parent: u64, file: &str) -> u64 {
        let _ = self.lookup(parent, name(file)).await;
        let (_, handle) = self.create(parent, name(file), libc::O_WRONLY, 0o644).await.unwrap();
        self.write(handle, 0, b"some data").await.unwrap();
        self.flush(handle, 0).await.unwrap();
        handle
    }

    async fn list(&self, id: u64) -> usize {
        let listing = self.opendir(id).unwrap();
        let listed = self.entries(listing, 0, false).await.unwrap();
        let mut count = 0;
        for (_, entry) in listed.entries() {
            if let super::super::Entry::Named(entry) = entry {
                assert!(self.reply_listed(&listed, entry).attr.ino.0 > 1);
            }
            count += 1;
        }
        self.releasedir(listing);
        count
    }
}

/// Rows about reading.
async fn read_rows(world: &World, one: &mut Counted) {
    let directory = one.volume.number_of(ROOT, "d").await;
    one.forget().await;
    let id = one.row("`stat` of a name", async |v| v.number_of(directory, "f0").await).await;
    one.forget().await;
    one.row("open, read and close of a small file", async |v| {
        assert_eq!(v.number_of(directory, "f0").await, id);
        v.read_all(id).await;
    })
    .await;
    one.row("the same file again, within 10 s", async |v| v.read_all(id).await).await;
    one.forget().await;
    one.row("`ls -l`", async |v| assert_eq!(v.list(directory).await, 6)).await;
    one.row("open, read and close of a small file after `ls -l`", async |v| {
        let id = v.number_of(directory, "f1").await;
        v.read_all(id).await;
    })
    .await;
    std::fs::create_dir(world.path("large")).unwrap();
    for at in 0..2_600 {
        std::fs::write(world.path(&format!("large/{at:0220}")), b"").unwrap();
    }
    let large = one.volume.number_of(ROOT, "large").await;
    one.forget().await;
    // The first MiB of entries is not counted. The entries take about 1.4 MiB, so one round trip is
    // subtracted.
    one.row("`ls -l`, for each MiB of entries after the first", async |v| {
        assert_eq!(v.list(large).await, 2_602);
    })
    .await;
    one.rows.last_mut().unwrap().1 -= 1;
    std::fs::remove_dir_all(world.path("large")).unwrap();
}

/// Rows about changes; the names are known by a look-up before.
async fn change_rows(world: &World, one: &mut Counted) {
    one.forget().await;
    let directory = one.volume.number_of(ROOT, "d").await;
    let handle = one
        .row("create, write and close, the first file of a directory", async |v| {
            v.fill_in(directory, "new0").await
        })
        .await;
    one.volume.release(handle).await;
    for at in 1..4 {
        let handle = one.volume.fill_in(directory, &format!("new{at}")).await;
        one.volume.release(handle).await;
    }
    let handle = one
        .row("create, write and close, a further file", async |v| {
            v.fill_in(directory, "new4").await
        })
        .await;
    one.volume.release(handle).await;
    let id = one.volume.number_of(directory, "f2").await;
    let modified = Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    let times = Changes { modified, accessed: modified, ..Changes::default() };
    let told = one.row("`utime`", async |v| v.setattr(id, times).await.unwrap()).await;
    assert_eq!(Some(told.attr.mtime), modified);
    let mode = Changes { mode: Some(0o444), ..Changes::default() };
    let told = one.row("`chmod`", async |v| v.setattr(id, mode).await.unwrap()).await;
    assert_eq!(told.attr.perm & 0o222, 0);
    let mode = Changes { mode: Some(0o644), ..Changes::default() };
    one.volume.setattr(id, mode).await.unwrap();
    let (made, handle) =
        one.volume.create(directory, name("draft"), libc::O_RDWR, 0o644).await.unwrap();
    one.volume.write(handle, 0, b"some data").await.unwrap();
    let mode = Changes { mode: Some(0o444), ..Changes::default() };
    let told = one
        .row("`fchmod` of a file with data that is not sent yet", async |v| {
            v.setattr(made.attr.ino.0, mode).await.unwrap()
        })
        .await;
    assert_eq!((told.attr.perm & 0o222, told.attr.size), (0, 9));
    one.volume.flush(handle, 0).await.unwrap();
    one.volume.release(handle).await;
    assert_eq!(std::fs::read(world.path("d/draft")).unwrap(), b"some data");
    let size = Changes { size: Some(4), ..Changes::default() };
    let told = one.row("`truncate`", async |v| v.setattr(id, size).await.unwrap()).await;
    assert_eq!(told.attr.size, 4);
    one.row("`rename`", async |v| {
        v.rename((directory, name("f2")), (directory, name("f4")), 0).await.unwrap();
    })
    .await;
    let id = one.volume.number_of(directory, "f4").await;
    let told = one.row("`link`", async |v| v.link(id, directory, name("f5")).await.unwrap()).await;
    assert_eq!(told.attr.nlink, 2);
    one.row("`unlink`", async |v| v.unlink(directory, name("f5")).await.unwrap()).await;
    let id = one.volume.number_of(directory, "f3").await;
    one.volume.read_all(id).await;
    one.row("`unlink` of a file that was just read", async |v| {
        v.unlink(directory, name("f3")).await.unwrap();
    })
    .await;
    link_rows(one, directory).await;
    xattr_rows(one, directory).await;
    let made = one.row("`mkdir`", async |v| v.mkdir(ROOT, name("e"), 0o750).await.unwrap()).await;
    let found = one.volume.lookup(ROOT, name("e")).await.unwrap().found();
    assert_eq!((made.attr.ino, made.attr.perm), (found.attr.ino, found.attr.perm));
    one.volume.list(made.attr.ino.0).await;
    one.row("`rmdir`", async |v| v.rmdir(ROOT, name("e")).await.unwrap()).await;
    assert!(!world.path("e").exists());
}

/// Rows about symbolic links.
async fn link_rows(one: &mut Counted, directory: u64) {
    let file = one.volume.number_of(directory, "f1").await;
    let made = one
        .row("`symlink` to a file or directory that was looked up", async |v| {
            v.symlink(directory, name("l1"), std::path::Path::new("f1")).await.unwrap()
        })
        .await;
    let found = one.volume.lookup(directory, name("l1")).await.unwrap().found();
    assert_eq!((made.attr.ino, made.attr.kind), (found.attr.ino, fuser::FileType::Symlink));
    assert_ne!(made.attr.ino.0, file);
    one.row("`symlink` to another name", async |v| {
        v.symlink(directory, name("l2"), std::path::Path::new("nowhere")).await.unwrap();
    })
    .await;
    let target = one.row("`readlink`", async |v| v.readlink(made.attr.ino.0).await.unwrap()).await;
    assert_eq!(target, std::path::Path::new("f1"));
}

/// Rows about extended attributes.
async fn xattr_rows(one: &mut Counted, directory: u64) {
    let id = one.volume.number_of(directory, "f1").await;
    let (plain, only_new) = (name("user.a"), name("user.b"));
    one.row("`setxattr`", async |v| v.setxattr(id, plain, b"x", 0).await.unwrap()).await;
    one.row("`setxattr` with XATTR_CREATE or XATTR_REPLACE", async |v| {
        v.setxattr(id, only_new, b"y", libc::XATTR_CREATE).await.unwrap();
    })
    .await;
    let value = one.row("`getxattr`", async |v| v.getxattr(id, plain).await.unwrap()).await;
    assert_eq!(value, b"x");
    let all = one.row("`listxattr`", async |v| v.listxattr(id).await.unwrap()).await;
    assert_eq!(String::from_utf8(all).unwrap().to_lowercase(), "user.a\0user.b\0");
    one.row("`removexattr`", async |v| v.removexattr(id, plain).await.unwrap()).await;
}

#[test]
fn each_call_takes_as_many_round_trips_as_its_row_says() {
    let page = include_str!("../../../../../docs/mount.md");
    let table = page.split("## Round trips").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |"));
    let promised: Vec<(&str, usize)> = rows
        .filter_map(|row| row.split_once(" | "))
        .filter_map(|(call, trips)| Some((call, trips.parse().ok()?)))
        .collect();
    for posix in [false, true] {
        in_world(async |world| {
            std::fs::create_dir(world.path("d")).unwrap();
            for at in 0..4 {
                std::fs::write(world.path(&format!("d/f{at}")), b"some data").unwrap();
            }
            let mut one = Counted::new(world, posix).await;
            read_rows(world, &mut one).await;
            change_rows(world, &mut one).await;
            assert_eq!(one.rows, promised, "posix: {posix}");
        });
    }
}
