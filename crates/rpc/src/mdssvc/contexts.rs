//! The state of one pipe: the shares that its client searches, and the queries in them.

use super::attributes::Hit;
use super::calls::{Command, Reply, Request};
use super::methods::{self, Called, FAILED, MORE, Method, OpenQuery, QueryKey};
use super::query::parse_query;
use super::value::{Cnids, Value};
use super::{FLAGS, pack, unpack};
use crate::FaultStatus;
use crate::interface::Answer;
use crate::limits::{
    MAX_SPOTLIGHT_ATTRIBUTES, MAX_SPOTLIGHT_QUERIES, MAX_SPOTLIGHT_SCOPES, MAX_SPOTLIGHT_TOLD,
    MAX_SPOTLIGHT_TOLD_BYTES, MAX_SPOTLIGHT_VOLUMES, SPOTLIGHT_ANSWER_BYTES,
    SPOTLIGHT_LEAST_FRAGMENT, SPOTLIGHT_RESULTS_AT_ONCE,
};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use frevo_index::Query;
use frevo_wire::ndr::ContextHandle;

/// The server behind a pipe, for one caller.
pub trait Volumes {
    /// A share that may be searched.
    type Share: Clone;
    /// A place in a search, where it goes on.
    type Cursor: Copy;
    /// Returns a share that the caller may search: one that it may connect to, with an index.
    fn find(&self, name: &str) -> Option<Volume<Self::Share>>;
    /// Returns random bytes, for handles.
    fn random(&self) -> [u8; 16];
    /// Returns the time, in seconds since 1970-01-01 00:00 UTC.
    fn now(&self) -> i64;
}

/// A share that may be searched.
#[derive(Debug, Clone)]
pub struct Volume<S> {
    /// The share.
    pub share: S,
    /// Its name.
    pub name: String,
    /// Its UUID, which stays.
    pub uuid: [u8; 16],
}

/// The progress of a call.
#[derive(Debug)]
pub enum Progress<S, P> {
    /// The call has ended.
    Ended(Answer),
    /// A search is to be made, and [`Spotlight::complete`] to be called with what it finds.
    Search(Search<S, P>),
}

/// A search that is to be made.
#[derive(Debug)]
pub struct Search<S, P> {
    /// The share.
    pub share: S,
    /// The folder in the share, with `/` between its parts; empty for the whole share.
    pub scope: String,
    /// The condition on the files.
    pub query: Arc<Query>,
    /// The place where the last page of this scope ended; None for the first.
    pub after: Option<P>,
    /// The most files of a page.
    pub most: usize,
    /// The call that waits for it.
    pub searched: Searched,
}

/// A call that waits for a search.
#[derive(Debug)]
pub struct Searched {
    handle: ContextHandle,
    key: QueryKey,
    serial: u64,
    max_fragment: u32,
}

/// A page of a search.
#[derive(Debug, Clone)]
pub struct Page<P> {
    /// The files.
    pub found: Vec<Hit>,
    /// The place where the page ends; None for the last page.
    pub after: Option<P>,
}

/// A query that a client has opened.
#[derive(Debug)]
struct Running<P> {
    key: QueryKey,
    /// Its number among the queries of the share: a client may use the same key again.
    serial: u64,
    query: Arc<Query>,
    attributes: Vec<String>,
    /// The numbers that may be told; None for all.
    items: Option<Vec<u64>>,
    /// The folders that are still to be searched, the present one first.
    scopes: VecDeque<String>,
    after: Option<P>,
    /// True while a search is made.
    is_searching: bool,
    /// Files that were found and not told yet.
    queued: VecDeque<Hit>,
}

impl<P> Running<P> {
    fn bytes(&self) -> usize {
        let texts = self.attributes.iter().chain(&self.scopes);
        let texts: usize = texts.map(|text| text.capacity().saturating_add(32)).sum();
        let items = self.items.as_ref().map_or(0, |items| items.capacity().saturating_mul(8));
        let queued: usize = self.queued.iter().map(Hit::bytes).sum();
        let conditions = query_bytes(&self.query);
        [texts, items, queued, conditions]
            .iter()
            .fold(size_of::<Self>(), |sum, part| sum.saturating_add(*part))
    }

    /// Takes the files that fit into one answer: their numbers, and their attributes.
    fn take(&mut self, root: &str, told: &mut Told) -> Rows {
        let (mut rows, mut bytes) = (Rows::default(), 0_usize);
        while let Some(found) = self.queued.pop_front() {
            let row: Vec<_> =
                self.attributes.iter().map(|name| found.attribute(name, root)).collect();
            // Each value has a tag, an entry of the table of contents, and the bytes of a text.
            let size = |value: &Value| value.as_text().map_or(0, str::len).saturating_add(40);
            bytes = row.iter().map(size).fold(bytes.saturating_add(40), usize::saturating_add);
            if bytes > SPOTLIGHT_ANSWER_BYTES && !rows.ids.is_empty() {
                self.queued.push_front(found);
                break;
            }
            rows.ids.push(found.id);
            rows.attributes.push(row);
            told.push(found);
        }
        rows
    }
}

#[derive(Debug, Default)]
struct Rows {
    ids: Vec<u64>,
    attributes: Vec<Vec<Value>>,
}

/// Bytes of a query: its conditions and their texts.
fn query_bytes(query: &Query) -> usize {
    const CONDITION: usize = 128;
    match query {
        Query::And(all) | Query::Or(all) => {
            all.iter().map(query_bytes).fold(CONDITION, usize::saturating_add)
        }
        Query::Not(query) => query_bytes(query).saturating_add(CONDITION),
        Query::Name(text) | Query::Content(text) => text.text.capacity().saturating_add(CONDITION),
        _ => CONDITION,
    }
}

/// The files that were told last, about which a client may ask.
#[derive(Debug, Default)]
struct Told {
    files: VecDeque<Hit>,
    bytes: usize,
}

impl Told {
    fn push(&mut self, found: Hit) {
        self.bytes = self.bytes.saturating_add(found.bytes());
        self.files.push_back(found);
        while self.files.len() > MAX_SPOTLIGHT_TOLD || self.bytes > MAX_SPOTLIGHT_TOLD_BYTES {
            let Some(oldest) = self.files.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }

    /// Returns the file with this number, as it was told last.
    fn find(&self, id: u64) -> Option<&Hit> {
        self.files.iter().rev().find(|found| found.id == id)
    }
}

/// A share that the client of a pipe has opened.
#[derive(Debug)]
struct Opened<S, P> {
    handle: ContextHandle,
    volume: Volume<S>,
    /// The path of the share, as the server has told it.
    root: String,
    /// The path of the share at the client.
    mount_path: String,
    queries: Vec<Running<P>>,
    /// Queries that were opened so far.
    opened_queries: u64,
    told: Told,
    /// The part of the last answer that was not told yet.
    rest: Vec<u8>,
}

/// The state of one pipe.
#[derive(Debug)]
pub struct Spotlight<S, P>(Vec<Opened<S, P>>);

impl<S, P> Default for Spotlight<S, P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S: Clone, P: Copy> Spotlight<S, P> {
    /// Starts a call.
    pub fn begin(
        &mut self,
        opnum: u16,
        stub: &[u8],
        volumes: &dyn Volumes<Share = S, Cursor = P>,
    ) -> Progress<S, P> {
        let reply = match Request::parse(opnum, stub) {
            Err(fault) => Err(fault),
            Ok(Request::Open { echoed, mount_path, share }) => {
                let opened = self.open(&share, mount_path, volumes);
                let (share_path, handle) = opened.unwrap_or((String::new(), ContextHandle::NULL));
                Ok(Reply::Open { echoed, share_path, handle })
            }
            Ok(Request::Unknown1 { handle }) if handle == ContextHandle::NULL => {
                Ok(Reply::Unknown1 { flags: 0 })
            }
            Ok(Request::Unknown1 { handle }) => {
                self.opened(&handle).map(|_| Reply::Unknown1 { flags: FLAGS })
            }
            Ok(Request::Close { handle }) => self.close(handle),
            Ok(Request::Command(command)) => return self.command(&command, volumes),
        };
        Progress::Ended(reply.map(|reply| reply.encode()))
    }

    /// Ends a call with the page that its search has found; None for a search that has failed.
    pub fn complete(&mut self, searched: &Searched, page: Option<Page<P>>) -> Answer {
        let Searched { handle, key, serial, max_fragment } = searched;
        let opened = self.opened(handle)?;
        let is_it = |query: &&mut Running<P>| query.key == *key && query.serial == *serial;
        let answer = match (opened.queries.iter_mut().find(is_it), page) {
            (Some(query), Some(page)) => {
                query.is_searching = false;
                query.after = page.after;
                if page.after.is_none() {
                    query.scopes.pop_front();
                }
                let is_wanted = |found: &Hit| {
                    query.items.as_ref().is_none_or(|items| items.contains(&found.id))
                };
                let found = page.found.into_iter().take(SPOTLIGHT_RESULTS_AT_ONCE);
                query.queued.extend(found.filter(is_wanted));
                let rows = query.take(&opened.root, &mut opened.told);
                let is_done = query.queued.is_empty() && query.scopes.is_empty();
                let status = if is_done { 0 } else { MORE };
                methods::results(status, *key, rows.ids, rows.attributes)
            }
            (query, _) => {
                if let Some(query) = query {
                    query.is_searching = false;
                    query.scopes.clear();
                }
                methods::result(FAILED)
            }
        };
        Ok(opened.reply(&answer, *max_fragment).encode())
    }

    fn open(
        &mut self,
        share: &str,
        mount_path: String,
        volumes: &dyn Volumes<Share = S, Cursor = P>,
    ) -> Option<(String, ContextHandle)> {
        let volume = volumes.find(share)?;
        let mut handle = ContextHandle::NULL;
        handle.0.get_mut(4..)?.copy_from_slice(&volumes.random());
        let is_taken = handle == ContextHandle::NULL || self.opened(&handle).is_ok();
        if is_taken || self.0.len() >= MAX_SPOTLIGHT_VOLUMES {
            return None;
        }
        let root = format!("/{}", volume.name);
        let (queries, opened_queries) = (Vec::new(), 0);
        let (told, rest) = (Told::default(), Vec::new());
        let share_path = root.clone();
        self.0.push(Opened {
            handle,
            volume,
            root,
            mount_path,
            queries,
            opened_queries,
            told,
            rest,
        });
        Some((share_path, handle))
    }

    /// Returns the share of a handle; a handle that there is not is an error of the protocol, as in Samba.
    fn opened(&mut self, handle: &ContextHandle) -> Result<&mut Opened<S, P>, FaultStatus> {
        let found = self.0.iter_mut().find(|opened| opened.handle == *handle);
        found.ok_or(FaultStatus::PROTO_ERROR)
    }

    fn close(&mut self, handle: ContextHandle) -> Result<Reply, FaultStatus> {
        if handle != ContextHandle::NULL {
            self.opened(&handle)?;
            self.0.retain(|opened| opened.handle != handle);
        }
        Ok(Reply::Close { handle })
    }

    fn command(
        &mut self,
        command: &Command,
        volumes: &dyn Volumes<Share = S, Cursor = P>,
    ) -> Progress<S, P> {
        let not_understood = Reply::Command { fragment: 0, message: Vec::new() };
        if command.handle == ContextHandle::NULL {
            return Progress::Ended(Ok(not_understood.encode()));
        }
        let queries: usize = self.0.iter().map(|opened| opened.queries.len()).sum();
        let opened = match self.opened(&command.handle) {
            Ok(opened) => opened,
            Err(fault) => return Progress::Ended(Err(fault)),
        };
        if command.next_fragment != 0 {
            let rest = core::mem::take(&mut opened.rest);
            return Progress::Ended(Ok(opened.part(rest, command.max_fragment).encode()));
        }
        opened.rest = Vec::new();
        let Ok(message) = unpack(&command.message) else {
            return Progress::Ended(Ok(not_understood.encode()));
        };
        let Some(called) = Called::of(&message) else {
            return Progress::Ended(Ok(not_understood.encode()));
        };
        let key = called.key;
        let answer = match called.method {
            Method::FetchResults => return opened.fetch(key, command.max_fragment),
            Method::OpenQuery(params) => {
                let is_open = params.and_then(|params| {
                    opened.open_query(key, &params, queries < MAX_SPOTLIGHT_QUERIES, volumes.now())
                });
                methods::result(if is_open.is_some() { 0 } else { FAILED })
            }
            Method::FetchProperties => methods::properties(opened.volume.uuid),
            Method::CloseQuery => {
                let before = opened.queries.len();
                opened.queries.retain(|query| query.key != key);
                methods::result(if opened.queries.len() < before { 0 } else { FAILED })
            }
            Method::FetchAttributeNames(asked) => opened.attribute_names(asked),
            Method::FetchAttributes(wanted, asked) => opened.attributes(wanted.as_deref(), asked),
            Method::StoreAttributes | Method::Unknown => methods::result(FAILED),
        };
        Progress::Ended(Ok(opened.reply(&answer, command.max_fragment).encode()))
    }

    /// Bytes that the state takes.
    pub fn bytes(&self) -> usize {
        let of = |opened: &Opened<S, P>| {
            let queries: usize = opened.queries.iter().map(Running::bytes).sum();
            let texts = opened.root.capacity().saturating_add(opened.mount_path.capacity());
            let rest = opened.rest.capacity().saturating_add(texts);
            [queries, opened.told.bytes, rest]
                .iter()
                .fold(size_of::<Opened<S, P>>(), |sum, part| sum.saturating_add(*part))
        };
        self.0.iter().map(of).fold(0, usize::saturating_add)
    }
}

impl<S: Clone, P: Copy> Opened<S, P> {
    /// Opens a query, in place of one with the same numbers. None for one that is not understood, or one too many.
    fn open_query(
        &mut self,
        key: QueryKey,
        params: &OpenQuery<'_>,
        has_room: bool,
        now: i64,
    ) -> Option<()> {
        self.queries.retain(|query| query.key != key);
        let OpenQuery { query, attributes, scopes, items } = params;
        let too_many = |length: usize, most: usize| length > most;
        if !has_room || too_many(attributes.len(), MAX_SPOTLIGHT_ATTRIBUTES) {
            return None;
        }
        let query = Arc::new(parse_query(query, now).ok()?);
        let scopes = self.scopes(scopes.as_deref())?;
        self.opened_queries = self.opened_queries.saturating_add(1);
        self.queries.push(Running {
            key,
            serial: self.opened_queries,
            query,
            attributes: methods::owned(attributes),
            items: items.map(<[u64]>::to_vec),
            scopes,
            after: None,
            is_searching: false,
            queued: VecDeque::new(),
        });
        Some(())
    }

    /// Returns the folders of the share that a client means; None if one of them is not in the share.
    fn scopes(&self, paths: Option<&[&str]>) -> Option<VecDeque<String>> {
        let paths = paths.unwrap_or(&[]);
        if paths.len() > MAX_SPOTLIGHT_SCOPES {
            return None;
        }
        let mut scopes = paths.iter().map(|path| self.scope(path)).collect::<Option<Vec<_>>>()?;
        scopes.sort_unstable();
        // A folder in another folder of the list is searched with it.
        let mut kept = VecDeque::<String>::new();
        for scope in scopes {
            let is_in = |outer: &String| is_below(&scope, outer).is_some();
            if !kept.iter().any(is_in) {
                kept.push_back(scope);
            }
        }
        if kept.is_empty() {
            kept.push_back(String::new());
        }
        Some(kept)
    }

    /// Returns the folder of a path of the server, or of the client.
    fn scope(&self, path: &str) -> Option<String> {
        let path = path.trim_end_matches('/');
        if path.is_empty() || path.starts_with("kMDQueryScope") {
            return Some(String::new());
        }
        let mount_path = self.mount_path.trim_end_matches('/');
        let of_client = || if mount_path.is_empty() { None } else { is_below(path, mount_path) };
        let folder = is_below(path, &self.root).or_else(of_client)?;
        let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
        let is_good = folder.is_empty() || !folder.split('/').any(is_odd);
        is_good.then(|| folder.into())
    }

    /// Answers fetchQueryResultsForContext:, by what was found before, or by a search.
    fn fetch(&mut self, key: QueryKey, max_fragment: u32) -> Progress<S, P> {
        let Some(query) = self.queries.iter_mut().find(|query| query.key == key) else {
            let answer = methods::result(FAILED);
            return Progress::Ended(Ok(self.reply(&answer, max_fragment).encode()));
        };
        let scope = query.scopes.front().filter(|_| query.queued.is_empty() && !query.is_searching);
        if let Some(scope) = scope {
            query.is_searching = true;
            return Progress::Search(Search {
                share: self.volume.share.clone(),
                scope: scope.clone(),
                query: Arc::clone(&query.query),
                after: query.after,
                most: SPOTLIGHT_RESULTS_AT_ONCE,
                searched: Searched { handle: self.handle, key, serial: query.serial, max_fragment },
            });
        }
        let rows = query.take(&self.root, &mut self.told);
        let is_done = query.queued.is_empty() && query.scopes.is_empty();
        let status = if is_done { 0 } else { MORE };
        let answer = methods::results(status, key, rows.ids, rows.attributes);
        Progress::Ended(Ok(self.reply(&answer, max_fragment).encode()))
    }

    fn attribute_names(&self, asked: Option<&Cnids>) -> Vec<Value> {
        match asked {
            Some(asked) => methods::attribute_names(asked),
            None => methods::result(FAILED),
        }
    }

    fn attributes(&self, wanted: Option<&[&str]>, asked: Option<&Cnids>) -> Vec<Value> {
        let is_long = wanted.is_some_and(|wanted| wanted.len() > MAX_SPOTLIGHT_ATTRIBUTES);
        let Some(asked) = asked.filter(|_| !is_long) else { return methods::result(FAILED) };
        let found = asked.ids.first().and_then(|id| self.told.find(*id));
        methods::attributes(asked, wanted, found, &self.root)
    }

    /// Packs an answer.
    fn reply(&mut self, answer: &[Value], max_fragment: u32) -> Reply {
        let packed = pack(answer).or_else(|_| pack(&methods::result(FAILED)));
        self.part(packed.unwrap_or_default(), max_fragment)
    }

    /// Answers with as many bytes as the client takes at once, and keeps the others for its next command.
    fn part(&mut self, mut bytes: Vec<u8>, max_fragment: u32) -> Reply {
        let most = usize::try_from(max_fragment.max(SPOTLIGHT_LEAST_FRAGMENT));
        let most = most.unwrap_or(usize::MAX).min(bytes.len());
        self.rest = bytes.split_off(most);
        Reply::Command { fragment: u32::from(!self.rest.is_empty()), message: bytes }
    }
}

/// Returns the rest of a path below a folder; empty for the folder itself.
fn is_below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    if folder.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(folder)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}
