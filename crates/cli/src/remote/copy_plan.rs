//! The plan of a copy. `get`, `put`, `cp` and `sync` share it: it finds the files of all sources,
//! decides the target of each, skips links and special files, refuses collisions and overlap,
//! creates the directories and copies the files. The commands differ in their ends only.

use frevo_client::Share;
use frevo_client::internal::ListingCharge;
use frevo_wire::fscc::upcase_name;
use futures_util::stream::{self, StreamExt};

use super::connection_options::Connection;
use super::directory_times::{self, DirectoryTime};
use super::endpoint::{Endpoint, Entry, Listed, Treatment, path_in};
use super::equality::is_up_to_date;
use super::failures::{AT_ONCE, Failures, each, in_order};
use super::filter::Filter;
use super::links::{self, Link};
use super::local_directories::LocalDirectories;
use super::local_names::local_in;
use super::location::folder;
use super::name_collisions::{Case, TakenNames};
use super::overlap::Ends;
use super::parallel_sessions::ParallelSessions;
use super::report::{planned, planned_total, report, tell_skipped};
use super::transfer::{self, CopyOptions, is_small};
use super::walk::Kind;
use crate::exit::{Done, Exit, Failure};

/// The summary of a copy without files.
pub(crate) const NOTHING_COPIED: &str = "no files to copy";

/// The options that decide which files are copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub(crate) recursive: bool,
    /// The actions are only shown.
    pub(crate) dry_run: bool,
    /// Files whose target is equal or newer are skipped.
    pub(crate) update: bool,
    /// Symbolic links are copied.
    pub(crate) links: bool,
    pub(crate) filter: &'a Filter,
}

/// A file or directory to copy, with its target.
pub(crate) struct Source {
    from: Endpoint,
    to: Endpoint,
    is_directory: bool,
    /// The target is a local device or pipe: it is written to, not replaced.
    is_stream: bool,
    /// Directories below the target, each after those above it.
    directories: Vec<String>,
    files: Vec<File>,
    links: Vec<Link>,
    /// Times of directories, also of the target itself.
    times: Vec<DirectoryTime>,
}

/// The parts of a directory that are copied.
#[derive(Default)]
pub(crate) struct Parts {
    /// Directories to create, each after those above it.
    pub(crate) directories: Vec<String>,
    pub(crate) files: Vec<File>,
    pub(crate) links: Vec<Link>,
    /// Times of directories, also of the target itself.
    pub(crate) times: Vec<DirectoryTime>,
}

/// A file to copy.
pub(crate) struct File {
    /// The path below the source. Empty for a source that is a file.
    pub(crate) from: String,
    /// The path below the target. Empty for a target that is a file.
    pub(crate) to: String,
    /// Length in bytes, as listed.
    pub(crate) len: u64,
}

impl Source {
    /// A directory whose files were compared with those of its target, as far as `parts` has them.
    pub(crate) fn compared(ends: &Ends, parts: Parts) -> Self {
        let (from, to) = (ends.from.clone(), ends.to.clone());
        let Parts { directories, files, links, times } = parts;
        Self { from, to, is_directory: true, is_stream: false, directories, files, links, times }
    }

    /// The share whose sessions can share the work: of a copy from or to this machine. Copies on
    /// a server have to be in one session.
    fn divisible(&self) -> Option<&Share> {
        match (&self.from, &self.to) {
            (Endpoint::Local(_), Endpoint::Remote(share, _))
            | (Endpoint::Remote(share, _), Endpoint::Local(_)) => Some(share),
            _ => None,
        }
    }

    async fn create_root(&self) -> Done {
        if self.is_directory { self.to.create().await } else { Ok(()) }
    }

    /// Creates the directories below a local target. Where a link or file is in the place of one,
    /// the files of that directory are dropped from the plan.
    fn create_local(&mut self, failures: &mut Failures) -> Done {
        let Endpoint::Local(root) = &self.to else { return Ok(()) };
        let mut made = LocalDirectories::default();
        for name in &self.directories {
            let path = local_in(root, name);
            let Err(error) = made.create(&path) else { continue };
            let is_full = error.kind() == std::io::ErrorKind::StorageFull;
            let failure = Failure::failed(format!("cannot create {}", path.display()))(error);
            if is_full {
                return Err(failure);
            }
            failures.add(failure);
        }
        self.files.retain(|file| made.can_have(&local_in(root, &file.to)));
        self.links.retain(|link| made.can_have(&local_in(root, &link.name)));
        self.times.retain(|time| made.can_have(&local_in(root, &time.name)));
        Ok(())
    }
}

/// A source that was looked at, before anything is decided about it.
struct FoundSource {
    ends: Ends,
    root: Entry,
    /// The target of a source that is a file, if `--update` compares it with the source.
    there: Option<Entry>,
}

impl FoundSource {
    async fn look(ends: Ends, update: bool) -> Result<Self, Failure> {
        let root = ends.from.look().await?;
        let is_compared = update && root.kind != Kind::Directory;
        let there = if is_compared { ends.to.resolved().0.look().await.ok() } else { None };
        Ok(Self { ends, root, there })
    }
}

/// A source that is a directory, with its content.
struct FoundDirectory {
    ends: Ends,
    root: Entry,
    listed: Listed,
}

/// The sources of a command, with the decisions about their files.
pub(crate) struct CopyPlan<'a> {
    selection: Selection<'a>,
    taken: TakenNames,
    skipped: Vec<String>,
    /// Partial copies in the sources, which are not copied.
    parts: Vec<String>,
    sources: Vec<Source>,
    /// The room that they take of the budget of listings.
    kept: Vec<ListingCharge>,
}

impl<'a> CopyPlan<'a> {
    /// An empty plan. `case` tells how the target compares names.
    pub(crate) fn new(selection: Selection<'a>, case: Case) -> Self {
        let (skipped, parts, sources, kept) = Default::default();
        Self { selection, taken: TakenNames::new(case), skipped, parts, sources, kept }
    }

    /// Adds sources in their order, after `find` has looked at all of them, many at the same time.
    /// A source that cannot be read or is refused is noted in `failures`.
    ///
    /// # Errors
    /// A failure that all other sources would meet too.
    pub(crate) async fn add_all<T>(
        &mut self,
        sources: &[T],
        find: impl AsyncFn(&T) -> Result<Ends, Failure>,
        options: &CopyOptions,
        failures: &mut Failures,
    ) -> Done {
        let (find, update) = (&find, self.selection.update);
        let all = sources.iter().map(|source| async move {
            match find(source).await {
                Ok(ends) => FoundSource::look(ends, update).await,
                Err(failure) => Err(failure),
            }
        });
        let add = async |found: Result<FoundSource, Failure>| {
            let added = match found {
                Ok(found) => self.add(found, options, failures).await,
                Err(failure) => Err(failure),
            };
            failures.goes_on(added)
        };
        in_order(all, add).await
    }

    /// Adds a source and finds its files.
    ///
    /// # Errors
    /// The source is refused; single files that fail are noted in `failures`.
    async fn add(
        &mut self,
        FoundSource { ends, root, there }: FoundSource,
        options: &CopyOptions,
        failures: &mut Failures,
    ) -> Done {
        if root.kind != Kind::Directory {
            return self.add_file(ends, &root, there.as_ref(), options);
        }
        if !self.selection.recursive {
            let source = ends.from.url("");
            let text = format!("{source} is a directory; use -r to copy it with its content");
            return Err(Failure::new(Exit::Usage, text).of("copy", source));
        }
        if ends.target_is_inside() {
            return Err(into_itself(&ends.from.url("")));
        }
        ends.to.check_directory().await?;
        let filter = self.selection.filter;
        let treatment = |name: &str, kind: Kind, modified| {
            let passes = filter.passes(name, kind == Kind::Directory, modified);
            if passes { Treatment::As(kind) } else { Treatment::Ignored }
        };
        let is_kin = |found: &_| ends.to_ancestry.may_have(found);
        let note = |error| failures.note(error);
        let listed = ends.from.list(false, is_kin, treatment, note).await?;
        if ends.target_in(&listed).await.is_some() {
            return Err(into_itself(&ends.from.url("")));
        }
        let there =
            if self.selection.update { present(&ends.to).await? } else { Listed::default() };
        self.add_listed(FoundDirectory { ends, root, listed }, &there, options, failures);
        Ok(())
    }

    /// Adds a source that is a file; `there` is its target, as far as that is of interest.
    fn add_file(
        &mut self,
        ends: Ends,
        root: &Entry,
        there: Option<&Entry>,
        options: &CopyOptions,
    ) -> Done {
        let (to, is_stream) = ends.to.resolved();
        if there.is_some_and(|there| is_up_to_date(root, there)) {
            options.progress.is_up_to_date();
            return Ok(());
        }
        self.taken.take(&to.shown(""), Kind::File, ends.from.url(""))?;
        options.progress.expect(root.len);
        let files = vec![File { from: String::new(), to: String::new(), len: root.len }];
        let Parts { directories, links, times, .. } = Parts::default();
        let (from, is_directory) = (ends.from, false);
        let source = Source { from, to, is_directory, is_stream, directories, files, links, times };
        self.sources.push(source);
        Ok(())
    }

    /// Decides about each entry of a source: skipped, refused, created or copied.
    fn add_listed(
        &mut self,
        FoundDirectory { ends, root, listed }: FoundDirectory,
        there: &Listed,
        options: &CopyOptions,
        failures: &mut Failures,
    ) {
        let Ends { from, to, .. } = ends;
        let Parts { mut directories, mut files, mut links, .. } = Parts::default();
        let mut times = vec![DirectoryTime::new("", root.modified)];
        self.kept.push(listed.kept);
        for (name, entry) in listed.entries {
            let Entry { kind, len, .. } = entry;
            if kind == Kind::Other && !(entry.is_link && self.selection.links) {
                self.skipped.push(from.shown(&name));
                continue;
            }
            if kind == Kind::File && transfer::is_part(&name) {
                self.parts.push(from.shown(&name));
                continue;
            }
            if kind == Kind::File
                && there.get(&key(&to, &name)).is_some_and(|there| is_up_to_date(&entry, there))
            {
                options.progress.is_up_to_date();
                continue;
            }
            if let Err(failure) = self.taken.take(&to.shown(&name), kind, from.url(&name)) {
                failures.add(failure);
            } else if kind == Kind::Other {
                links.push(Link::new(name, entry.to_directory));
            } else if kind == Kind::Directory {
                times.push(DirectoryTime::new(&*name, entry.modified));
                directories.push(name);
            } else {
                options.progress.expect(len);
                files.push(File { from: name.clone(), to: name, len });
            }
        }
        let (is_directory, is_stream) = (true, false);
        let source = Source { from, to, is_directory, is_stream, directories, files, links, times };
        self.sources.push(source);
    }

    /// Adds a source whose files are decided already.
    pub(crate) fn add_compared(&mut self, source: Source) {
        self.sources.push(source);
    }

    /// Carries the plan out, or shows it in a dry run, and reports.
    pub(crate) async fn carry_out(
        mut self,
        connection: &Connection,
        options: &CopyOptions,
        mut failures: Failures,
    ) -> Done {
        tell_skipped("links and special files", &self.skipped);
        tell_skipped("incomplete copies", &self.parts);
        if self.selection.dry_run {
            self.show(connection.json);
            return failures.end("copied");
        }
        self.run(connection, options, &mut failures).await?;
        report(connection.json, &options.progress, &failures, NOTHING_COPIED);
        failures.end("copied")
    }

    /// Prints the files to copy, and the directories to create on a server.
    fn show(&self, json: bool) {
        for Source { to, is_directory, directories, files, links, .. } in &self.sources {
            let root = is_directory.then_some("");
            let all = root.into_iter().chain(directories.iter().map(String::as_str));
            let all = all.filter(|_| to.is_remote()).map(|name| ("make", name));
            let links = links.iter().map(|link| ("link", &*link.name));
            let all = all.chain(files.iter().map(|file| ("copy", &*file.to))).chain(links);
            for (action, name) in all {
                if !planned(json, action, &to.shown(name)) {
                    return;
                }
            }
        }
        let files = || self.sources.iter().flat_map(|source| &source.files);
        let others = |source: &Source| {
            let root = usize::from(source.is_directory);
            let made = if source.to.is_remote() { root + source.directories.len() } else { 0 };
            made + source.links.len()
        };
        let others = self.sources.iter().map(others).sum::<usize>();
        let bytes = files().map(|file| file.len).fold(0, u64::saturating_add);
        planned_total(files().count() as u64, bytes, others as u64);
    }

    /// Creates the directories, then copies the files.
    pub(crate) async fn run(
        &mut self,
        connection: &Connection,
        options: &CopyOptions,
        failures: &mut Failures,
    ) -> Done {
        self.create_directories(failures).await?;
        let mut groups: Vec<(Option<&Share>, Vec<Job<'_>>)> = Vec::new();
        for source in &self.sources {
            let share = source.divisible();
            let url = |share: Option<&Share>| share.map(|share| share.url(""));
            let jobs = source.files.iter().map(|file| Job { source, file });
            match groups.iter_mut().find(|(other, _)| url(*other) == url(share)) {
                Some((_, group)) => group.extend(jobs),
                None => groups.push((share, jobs.collect())),
            }
        }
        for (share, jobs) in groups {
            let Some(share) = share else {
                each(jobs.iter().map(|job| job.copy(None, options)), failures).await?;
                continue;
            };
            let sessions = ParallelSessions::new(share, connection);
            let copy = async |share: &Share, job: &Job<'_>| job.copy(Some(share), options).await;
            sessions.each(jobs.iter(), Job::is_small, Job::folder, copy, failures).await?;
        }
        for source in &self.sources {
            let Source { from, to, links, .. } = source;
            links::copy_all(from, to, links, options.force, failures).await?;
            directory_times::set_all(&source.to, &source.times).await;
        }
        Ok(())
    }

    /// Creates the directories of all sources. A source whose target cannot be created is
    /// dropped: one failure is told, not one for each file.
    async fn create_directories(&mut self, failures: &mut Failures) -> Done {
        let roots = stream::iter(self.sources.iter().map(Source::create_root));
        let created: Vec<Done> = roots.buffered(AT_ONCE).collect().await;
        for (source, created) in self.sources.iter_mut().zip(created) {
            let created = created.and_then(|()| source.create_local(failures));
            if created.is_err() {
                source.directories.clear();
                source.files.clear();
                source.links.clear();
                source.times.clear();
            }
            failures.note_done(created)?;
        }
        let mut by_share: Vec<(&Share, Vec<String>)> = Vec::new();
        for source in &self.sources {
            let Endpoint::Remote(share, root) = &source.to else { continue };
            let paths = source.directories.iter().map(|name| path_in(root, name));
            match by_share.iter_mut().find(|(other, _)| other.url("") == share.url("")) {
                Some((_, all)) => all.extend(paths),
                None => by_share.push((share, paths.collect())),
            }
        }
        for (share, paths) in by_share {
            create_remote(share, paths, failures).await?;
        }
        Ok(())
    }
}

/// The name as the target compares names.
fn key(to: &Endpoint, name: &str) -> String {
    if to.is_remote() { upcase_name(name) } else { name.to_owned() }
}

/// The entries of the target, as it compares names.
async fn present(to: &Endpoint) -> Result<Listed, Failure> {
    let all = |_: &str, kind: Kind, _| Treatment::As(kind);
    let Listed { entries, kept } = to.list(true, |_| false, all, |_| Ok(())).await?;
    let entries = entries.into_iter().map(|(name, entry)| (key(to, &name), entry)).collect();
    Ok(Listed { entries, kept })
}

/// Creates directories of a share, level by level.
async fn create_remote(share: &Share, mut paths: Vec<String>, failures: &mut Failures) -> Done {
    let depth = |path: &str| path.matches('/').count();
    paths.sort_by_key(|path| depth(path));
    for level in paths.chunk_by(|a, b| depth(a) == depth(b)) {
        each(level.iter().map(|path| share.create_dir_all(path)), failures).await?;
    }
    Ok(())
}

/// One file to copy, with the source that it belongs to.
struct Job<'a> {
    source: &'a Source,
    file: &'a File,
}

impl Job<'_> {
    /// True for a file that is copied in one round trip and can be copied again.
    fn is_small(&self) -> bool {
        !self.source.is_stream && is_small(self.file.len)
    }

    /// The directory of the file at the server's end.
    fn folder(&self) -> &str {
        match (&self.source.from, &self.source.to) {
            _ if !self.file.from.is_empty() => folder(&self.file.from),
            (Endpoint::Remote(_, path), _) | (_, Endpoint::Remote(_, path)) => folder(path),
            _ => "",
        }
    }

    /// Copies the file, over the session `over` if one is given.
    async fn copy(&self, over: Option<&Share>, options: &CopyOptions) -> frevo_client::Result<()> {
        let Self { source: Source { from, to, is_stream, .. }, file } = self;
        match (from, to) {
            (Endpoint::Local(from), Endpoint::Remote(share, to)) => {
                let (from, to) = (local_in(from, &file.from), path_in(to, &file.to));
                transfer::up(over.unwrap_or(share), &from, &to, options).await
            }
            (Endpoint::Remote(share, from), Endpoint::Local(to)) => {
                let (from, to) = (path_in(from, &file.from), local_in(to, &file.to));
                let share = over.unwrap_or(share);
                if *is_stream {
                    return transfer::down_into(share, &from, &to, options).await;
                }
                transfer::down(share, &from, &to, file.len, options).await
            }
            (Endpoint::Remote(source, from), Endpoint::Remote(target, to)) => {
                let (from, to) = (path_in(from, &file.from), path_in(to, &file.to));
                transfer::across(source, &from, target, &to, options).await
            }
            // No command copies from this machine to itself, so this pair does not occur.
            (Endpoint::Local(_), Endpoint::Local(_)) => Ok(()),
        }
    }
}

/// The failure of a copy whose target is inside its source.
pub(crate) fn into_itself(from: &str) -> Failure {
    let text = format!("{from} would be copied into itself; copy it to another place");
    Failure::new(Exit::Usage, text).of("copy", from)
}
