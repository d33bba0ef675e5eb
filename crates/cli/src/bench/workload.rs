//! The tests: what one operation of each is. Those of dev/bench are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use frevo_client::{File, OpenOptions, Result, Share};
use frevo_net::buffer::Buf;

use super::content::{Content, PAGE, Random};

/// Small files of each client, and their length.
pub(super) const SMALL_FILES: u64 = 64;
const SMALL_LEN: u32 = 4096;

/// The tests, in the order in which they run: each finds the files that those before it leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Test {
    /// Write a large file in place, one block at a time
    Write,
    /// Read the large file, one block at a time
    Read,
    /// Write 4 KiB at random places of the large file
    RandomWrite,
    /// Read 4 KiB at random places of the large file
    RandomRead,
    /// Create empty files
    Create,
    /// Look files up by name
    Stat,
    /// List the directory of these files
    List,
    /// Open, read and close files of 4 KiB
    OpenRead,
    /// Small files: 60 % open, read and close; 20 % replace; 10 % look up; 10 %
    /// create and remove
    Mix,
    /// Remove the created files
    Delete,
}

/// The unit in which a test's rate is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Operations,
    Entries,
}

impl Test {
    /// The name on the command line and in the table.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Write | Self::Read => Unit::Bytes,
            Self::List => Unit::Entries,
            _ => Unit::Operations,
        }
    }

    /// Requests of each client at the same time, unless the user says otherwise.
    pub(super) const fn depth(self) -> usize {
        match self {
            Self::Write | Self::Read => 4,
            Self::RandomWrite | Self::RandomRead => 16,
            _ => 1,
        }
    }

    /// Returns true if the test uses the large file.
    pub(super) const fn uses_data(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::RandomWrite | Self::RandomRead)
    }

    /// Returns true if the test needs the files that [`Self::Create`] makes.
    pub(super) const fn needs_created(self) -> bool {
        matches!(self, Self::Stat | Self::List | Self::Delete)
    }

    /// Returns true if the test uses the files of 4 KiB.
    pub(super) const fn uses_small(self) -> bool {
        matches!(self, Self::OpenRead | Self::Mix)
    }
}

/// The size of a test's work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes of the large file of each client.
    pub(super) data: u64,
    /// Bytes of one sequential request.
    pub(super) block: u32,
    /// Files that each client creates.
    pub(super) files: u64,
}

/// One client: a session with connections of its own, and its directory.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) share: Share,
    directory: String,
    content: Arc<Content>,
    pub(super) sizes: Sizes,
    /// The file that is read and written.
    data: Option<File>,
    /// The next block of the large file.
    next_block: AtomicU64,
    /// Files that were created and removed so far, or are about to be.
    created: AtomicU64,
    removed: AtomicU64,
}

/// The size of one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

impl Done {
    const fn bytes(bytes: u32) -> Self {
        Self { bytes: bytes as u64, entries: 0 }
    }
}

impl Client {
    /// A client that works in `directory`, which exists and is empty.
    pub(super) fn new(
        share: Share,
        directory: String,
        content: &Arc<Content>,
        sizes: Sizes,
    ) -> Self {
        let content = Arc::clone(content);
        let (data, next_block, created, removed) = Default::default();
        Self { share, directory, content, sizes, data, next_block, created, removed }
    }

    /// Makes the files that `tests` use. `advance` learns of the bytes, and returns false to stop.
    pub(super) async fn prepare(
        &mut self,
        tests: &[Test],
        mut advance: impl FnMut(u64) -> bool + Send,
    ) -> Result<()> {
        self.share.create_dir(&self.path("files")).await?;
        if tests.iter().any(|test| test.uses_small()) {
            self.share.create_dir(&self.path("small")).await?;
            for number in 0..SMALL_FILES {
                self.share.write(&self.small(number), self.small_content(number)).await?;
            }
        }
        if tests.iter().any(|test| test.uses_data()) {
            let options = OpenOptions::new().read(true).write(true).create_new(true);
            let file = options.open(&self.share, &self.path("data")).await?;
            let content = Arc::clone(&self.content);
            let fill = move |at: u64, len: usize, into: &mut Buf| {
                content.append(at, len, into);
                Ok(())
            };
            file.store(0, self.sizes.data, fill, &mut advance).await?;
            file.sync_all().await?;
            self.data = Some(file);
        }
        let needs_created = tests.iter().any(|test| test.needs_created());
        if needs_created && !tests.contains(&Test::Create) {
            while advance(0) && self.create().await?.is_some() {}
        }
        Ok(())
    }

    /// Carries out one operation. Returns `None` when there is none left.
    ///
    /// # Errors
    /// Fails if the server does, or sends wrong data.
    pub(super) async fn step(&self, test: Test, random: &mut Random) -> Result<Option<Done>> {
        let block = self.sizes.block;
        match test {
            Test::Write => self.write(self.next_place(), block).await.map(Some),
            Test::Read => self.read(self.next_place(), block).await.map(Some),
            Test::RandomWrite => self.write(self.random_place(random), SMALL_LEN).await.map(Some),
            Test::RandomRead => self.read(self.random_place(random), SMALL_LEN).await.map(Some),
            Test::Create => self.create().await,
            Test::Stat => {
                let Some(number) = random.next().checked_rem(self.created()) else {
                    return Ok(None);
                };
                self.share.lookup(&self.file(number)).await?;
                Ok(Some(Done::bytes(0)))
            }
            Test::List => {
                let listed = self.share.list_dir(&self.path("files")).await?.len() as u64;
                if listed != self.created() {
                    return Err(self.wrong("the listing does not have all files"));
                }
                Ok((listed > 0).then_some(Done { bytes: 0, entries: listed }))
            }
            Test::OpenRead => self.open_read(random.next()).await.map(Some),
            Test::Mix => self.mix(random).await.map(Some),
            Test::Delete => {
                let number = self.removed.fetch_add(1, Ordering::Relaxed);
                if number >= self.created() {
                    return Ok(None);
                }
                self.share.remove_file(&self.file(number)).await?;
                Ok(Some(Done::bytes(0)))
            }
        }
    }

    async fn write(&self, offset: u64, len: u32) -> Result<Done> {
        let fill = |into: &mut Buf| {
            self.content.append(offset, len as usize, into);
            Ok(())
        };
        self.data()?.write_with(offset, len, fill).await?;
        Ok(Done::bytes(len))
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Done> {
        let data = self.data()?.read_bytes(offset, len).await?;
        if !self.content.is(offset, len as usize, &data) {
            return Err(self.wrong("the server sent other data than was written"));
        }
        Ok(Done::bytes(len))
    }

    async fn create(&self) -> Result<Option<Done>> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        if number >= self.sizes.files {
            return Ok(None);
        }
        let options = OpenOptions::new().write(true).create_new(true);
        options.open(&self.share, &self.file(number)).await?.close().await?;
        Ok(Some(Done::bytes(0)))
    }

    async fn open_read(&self, number: u64) -> Result<Done> {
        let file = self.share.open(&self.small(number)).await?;
        let data = file.read_bytes(0, SMALL_LEN).await?;
        file.close().await?;
        if data != self.small_content(number) {
            return Err(self.wrong("the server sent other data than was written"));
        }
        Ok(Done::bytes(SMALL_LEN))
    }

    async fn mix(&self, random: &mut Random) -> Result<Done> {
        let (choice, number) = (random.next() >> 32, random.next());
        match choice % 10 {
            0..6 => self.open_read(number).await,
            6 | 7 => {
                // The file is overwritten and not replaced, because another task may be reading it.
                self.share.write(&self.small(number), self.small_content(number)).await?;
                Ok(Done::bytes(SMALL_LEN))
            }
            8 => {
                self.share.lookup(&self.small(number)).await?;
                Ok(Done::bytes(0))
            }
            _ => {
                let path = self.path(&format!("small/new-{number:016x}"));
                self.share.write(&path, self.small_content(number)).await?;
                self.share.remove_file(&path).await?;
                Ok(Done::bytes(SMALL_LEN))
            }
        }
    }

    fn next_place(&self) -> u64 {
        let block = u64::from(self.sizes.block);
        let number = self.next_block.fetch_add(1, Ordering::Relaxed);
        number % (self.sizes.data / block).max(1) * block
    }

    const fn random_place(&self, random: &mut Random) -> u64 {
        random.next() % (self.sizes.data / PAGE) * PAGE
    }

    /// Files that were created.
    fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed).min(self.sizes.files)
    }

    fn data(&self) -> Result<&File> {
        self.data.as_ref().ok_or_else(|| self.wrong("the data file is not open"))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    fn file(&self, number: u64) -> String {
        self.path(&format!("files/file-{number:06}"))
    }

    fn small(&self, number: u64) -> String {
        self.path(&format!("small/small-{}", number % SMALL_FILES))
    }

    fn small_content(&self, number: u64) -> Vec<u8> {
        let mut content = Buf::new();
        self.content.append(number % SMALL_FILES * PAGE, SMALL_LEN as usize, &mut content);
        content.to_vec()
    }

    fn wrong(&self, why: &str) -> frevo_client::Error {
        let why = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        let cause = frevo_client::Cause::Local(Arc::new(why));
        frevo_client::Error::new(cause, "measure", self.share.url(&self.directory))
    }
}
